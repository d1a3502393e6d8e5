//! To the first key of a block that is not below another, without making the keys before it.
//!
//! The keys that are looked for are all that begin with some `prefix` bits. Those bits change only where a key differs
//! from its predecessor within them, and there the bits behind stand in the block: so other keys are passed over by
//! their lengths alone. Several blocks are read in step, as in `decoding`.

use crate::bits::peek_most;
use crate::blocks::{BlockCode, Broken, LONGEST, WORD};
use crate::decoding::{Job, ends_at, unreadable};

const LANES: usize = 4;
/// Keys of each block that are passed over before it is asked whether the one that is wanted was among them.
const STEPS: usize = 16;

/// A block that is being searched: what is left of it, the key from which on it is wanted, and where that was found.
struct Search<const W: usize> {
    job: Job<W>,
    low: [u64; W],
    found: Option<Job<W>>,
}

impl BlockCode {
    /// The jobs, each from the first key on that is not below its `low`; without those in which none is.
    ///
    /// Only the first `prefix` bits of each low may be set. A job is broken where its block is.
    pub fn seek<const W: usize>(
        &self,
        data: &[u8],
        jobs: &[Job<W>],
        lows: &[[u64; W]],
        prefix: usize,
    ) -> Result<Vec<Job<W>>, Broken> {
        let mut found = Vec::with_capacity(jobs.len());
        let mut waiting = jobs.iter().zip(lows);
        let mut lanes: Vec<Search<W>> = Vec::with_capacity(LANES);
        loop {
            while lanes.len() < LANES {
                let Some((&job, &low)) = waiting.next() else {
                    break;
                };
                if job.first >= low {
                    found.push(job);
                } else {
                    let found = None;
                    lanes.push(Search { job, low, found });
                }
            }
            if lanes.is_empty() {
                return Ok(found);
            }
            self.pass_over(data, &mut lanes, prefix)
                .map_err(|lane| unreadable(lanes[lane].job.number))?;
            for at in (0..lanes.len()).rev() {
                let lane = &lanes[at];
                let at_end = lane.job.held == 1;
                if at_end && !ends_at(lane.job.begin, lane.job.end) {
                    return Err(unreadable(lane.job.number));
                }
                if lane.found.is_some() || at_end {
                    found.extend(lanes.swap_remove(at).found);
                }
            }
        }
    }

    /// Go on in all lanes, as many keys as the shortest still has or `STEPS`; or which of them is broken.
    fn pass_over<const W: usize>(
        &self,
        data: &[u8],
        lanes: &mut [Search<W>],
        prefix: usize,
    ) -> Result<(), usize> {
        let left = lanes.iter().map(|lane| lane.job.held - 1).min();
        let steps = left.unwrap_or(0).min(STEPS);
        if let Ok(lanes) = <&mut [Search<W>; LANES]>::try_from(&mut *lanes) {
            return self.pass_together(data, lanes, steps, prefix);
        }
        for (number, lane) in lanes.iter_mut().enumerate() {
            self.pass_together(data, std::array::from_mut(lane), steps, prefix)
                .map_err(|_| number)?;
        }
        Ok(())
    }

    fn pass_together<const W: usize, const N: usize>(
        &self,
        data: &[u8],
        lanes: &mut [Search<W>; N],
        steps: usize,
        prefix: usize,
    ) -> Result<(), usize> {
        let mut places = lanes.each_ref().map(|lane| lane.job.begin);
        for step in 1..=steps {
            for lane in 0..N {
                let bits = peek_most(data, places[lane]).ok_or(lane)?;
                let row = self.short[(bits >> (WORD as u32 - LONGEST)) as usize];
                if row.whole == 0 || usize::from(row.symbol) < prefix {
                    places[lane] = self
                        .turn(data, places[lane], &mut lanes[lane], step, prefix)
                        .ok_or(lane)?;
                } else {
                    places[lane] += usize::from(row.whole);
                }
            }
        }
        for (lane, place) in lanes.iter_mut().zip(places) {
            lane.job.begin = place;
            lane.job.held -= steps;
        }
        Ok(())
    }

    /// Read a key that may differ within the prefix, the one that is `step` behind the lane's; where it ends.
    #[inline(never)]
    fn turn<const W: usize>(
        &self,
        data: &[u8],
        place: usize,
        lane: &mut Search<W>,
        step: usize,
        prefix: usize,
    ) -> Option<usize> {
        let bits = peek_most(data, place)?;
        let row = self.rows[(bits >> (WORD as u32 - LONGEST)) as usize];
        let symbol = usize::from(row.symbol);
        if row.length == 0 {
            return None;
        }
        if symbol >= prefix {
            return Some(place + usize::from(row.length) + self.width.saturating_sub(symbol + 1));
        }
        let end = self.follow_far(data, place, &mut lane.job.first)?;
        if lane.found.is_none() && lane.job.first >= lane.low {
            lane.found = Some(Job {
                begin: end,
                held: lane.job.held - step,
                ..lane.job
            });
        }
        Some(end)
    }
}
