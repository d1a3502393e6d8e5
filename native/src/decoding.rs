//! Compressed blocks back to keys (`simhash/archive/format/blocks.py`, where the format is described).
//!
//! Within a block each key's place depends on the one before, and most of the time would go in waiting: so several
//! blocks are read in step.

use crate::bits::{PADDING, front, peek, peek_most};
use crate::blocks::{BlockCode, Blocks, Broken, LONGEST, WORD, check};

/// Blocks that are read in step.
const LANES: usize = 4;
/// Keys of each that are read before it is asked whether that is enough.
const STEPS: usize = 32;

/// What is to be read of a block that was checked: a key of it, the bits behind that, how many keys there are from that
/// one on, and the last one that is wanted.
#[derive(Clone, Copy)]
pub struct Job<const W: usize> {
    pub number: usize,
    pub first: [u64; W],
    pub begin: usize,
    pub end: usize,
    pub held: usize,
    pub stop: [u64; W],
}

/// A block that is being read.
struct Lane<const W: usize> {
    job: Job<W>,
    place: usize,
    keys: Vec<[u64; W]>,
    count: usize,
}

impl BlockCode {
    /// The keys, `count` in all, of blocks of these sizes and checks.
    pub fn decode<const W: usize>(
        &self,
        blocks: Blocks,
        count: usize,
    ) -> Result<Vec<[u64; W]>, Broken> {
        let mut keys = vec![[0; W]; count];
        let data = padded::<W>(blocks);
        let jobs = self.jobs(&data, blocks, count)?;
        self.read_blocks(&data, &jobs, |number, found| {
            let start = number * self.block_keys;
            keys[start..start + found.len()].copy_from_slice(found);
        })?;
        Ok(keys)
    }

    /// What there is to read of blocks that hold `count` keys, all of them; each is checked.
    ///
    /// `data` is the blocks' bytes, with `room` behind them.
    pub fn jobs<const W: usize>(
        &self,
        data: &[u8],
        blocks: Blocks,
        count: usize,
    ) -> Result<Vec<Job<W>>, Broken> {
        check_all(data, blocks.sizes, blocks.checks)?;
        let (mut jobs, mut start) = (Vec::with_capacity(blocks.sizes.len()), 0);
        for (number, &size) in blocks.sizes.iter().enumerate() {
            let end = start + 8 * size as usize;
            let held = self.held(count, number);
            if held == 0 || start + self.width > end {
                return Err(unreadable(number));
            }
            let mut first = [0; W];
            let begin = self.read_rest(data, start, &mut first, 0);
            let stop = [u64::MAX; W];
            jobs.push(Job {
                number,
                first,
                begin,
                end,
                held,
                stop,
            });
            start = end;
        }
        Ok(jobs)
    }

    /// How many keys the block of that number has where all blocks up to the last have `count`.
    fn held(&self, count: usize, number: usize) -> usize {
        let before = number * self.block_keys;
        count.saturating_sub(before).min(self.block_keys)
    }

    /// Hand on the keys of each job from its first one at least up to `stop`, with the block's number, in any order.
    pub fn read_blocks<const W: usize>(
        &self,
        data: &[u8],
        jobs: &[Job<W>],
        mut take: impl FnMut(usize, &[[u64; W]]),
    ) -> Result<(), Broken> {
        let mut waiting = jobs.iter();
        let mut lanes: Vec<Lane<W>> = Vec::with_capacity(LANES);
        let mut spare = Vec::new();
        loop {
            while lanes.len() < LANES {
                let Some(job) = waiting.next() else { break };
                let mut keys = spare.pop().unwrap_or(vec![[0; W]; self.block_keys]);
                keys[0] = job.first;
                lanes.push(Lane {
                    job: *job,
                    place: job.begin,
                    keys,
                    count: 1,
                });
            }
            if lanes.is_empty() {
                return Ok(());
            }
            self.advance(data, &mut lanes)
                .map_err(|lane| unreadable(lanes[lane].job.number))?;
            let mut at = 0;
            while at < lanes.len() {
                let lane = &lanes[at];
                let keys = &lane.keys[..lane.count];
                let all = lane.count == lane.job.held;
                if !all && keys[lane.count - 1] <= lane.job.stop {
                    at += 1;
                    continue;
                }
                if all && !ends_at(lane.place, lane.job.end) {
                    return Err(unreadable(lane.job.number));
                }
                take(lane.job.number, keys);
                spare.push(lanes.swap_remove(at).keys);
            }
        }
    }

    /// Read on in all lanes, as many keys as the shortest of them still has or `STEPS`; or which of them is broken.
    fn advance<const W: usize>(&self, data: &[u8], lanes: &mut [Lane<W>]) -> Result<(), usize> {
        let left = lanes.iter().map(|lane| lane.job.held - lane.count).min();
        let steps = left.unwrap_or(0).min(STEPS);
        if let Ok(lanes) = <&mut [Lane<W>; LANES]>::try_from(&mut *lanes) {
            return self.advance_together(data, lanes, steps);
        }
        for (number, lane) in lanes.iter_mut().enumerate() {
            self.advance_together(data, std::array::from_mut(lane), steps)
                .map_err(|_| number)?;
        }
        Ok(())
    }

    /// Read `steps` keys in each lane.
    fn advance_together<const W: usize, const N: usize>(
        &self,
        data: &[u8],
        lanes: &mut [Lane<W>; N],
        steps: usize,
    ) -> Result<(), usize> {
        let mut places = lanes.each_ref().map(|lane| lane.place);
        let mut keys = lanes.each_ref().map(|lane| lane.keys[lane.count - 1]);
        let outs = lanes
            .each_mut()
            .map(|lane| &mut lane.keys[lane.count..lane.count + steps]);
        for step in 0..steps {
            for lane in 0..N {
                places[lane] = self
                    .follow(data, places[lane], &mut keys[lane])
                    .ok_or(lane)?;
                outs[lane][step] = keys[lane];
            }
        }
        for (lane, place) in lanes.iter_mut().zip(places) {
            lane.place = place;
            lane.count += steps;
        }
        Ok(())
    }

    /// Replace a key by the one that follows it at the bit `place`; where that ends. None where none can.
    #[inline(always)]
    fn follow<const W: usize>(
        &self,
        data: &[u8],
        place: usize,
        key: &mut [u64; W],
    ) -> Option<usize> {
        if W == 1 {
            let bits = peek_most(data, place)?;
            let row = self.short[(bits >> (WORD as u32 - LONGEST)) as usize];
            if row.whole != 0 {
                let (bit, below) = self.masks[usize::from(row.symbol)];
                let before = key[0];
                key[0] = before & !below | bit | bits.rotate_right(row.turn.into()) & below;
                return (before & bit == 0).then_some(place + usize::from(row.whole));
            }
        }
        self.follow_far(data, place, key)
    }

    /// The same for a key of any length.
    pub fn follow_far<const W: usize>(
        &self,
        data: &[u8],
        place: usize,
        key: &mut [u64; W],
    ) -> Option<usize> {
        if data.len() < place / 8 + room::<W>() {
            return None;
        }
        let row = self.rows[(peek(data, place) >> (WORD as u32 - LONGEST)) as usize];
        let gap = usize::from(row.symbol);
        if row.length == 0 {
            return None;
        }
        let place = place + usize::from(row.length);
        if gap == self.width {
            return Some(place);
        }
        let bit = 1 << (WORD - 1 - gap % WORD);
        if key[gap / WORD] & bit != 0 {
            return None;
        }
        key[gap / WORD] |= bit;
        Some(self.read_rest(data, place, key, gap + 1))
    }

    /// Replace the bits of a key from `start` on; where they end.
    #[inline]
    fn read_rest<const W: usize>(
        &self,
        data: &[u8],
        mut place: usize,
        key: &mut [u64; W],
        start: usize,
    ) -> usize {
        for word in start / WORD..W {
            let end = (self.width - WORD * word).min(WORD);
            let begin = start.saturating_sub(WORD * word);
            let count = end.saturating_sub(begin);
            let kept = front(key[word], begin as u32);
            let kept = if begin == 0 {
                0
            } else {
                kept << (WORD - begin)
            };
            let rest = front(peek(data, place), count as u32);
            key[word] = kept | if end == 0 { 0 } else { rest << (WORD - end) };
            place += count;
        }
        place
    }
}

/// Whether all blocks, one behind the other, are what was written.
pub fn check_all(data: &[u8], sizes: &[u32], checks: &[u32]) -> Result<(), Broken> {
    let mut begin = 0;
    for (number, (&size, &stored)) in sizes.iter().zip(checks).enumerate() {
        let end = begin + size as usize;
        let found = data.get(begin..end).map(check);
        if found != Some(stored) {
            let found = found.unwrap_or_default();
            let reason = format!("its check is {found:08x}, not {stored:08x}");
            return Err((number, reason));
        }
        begin = end;
    }
    Ok(())
}

/// Bytes that are looked at behind a block's last bit, where it is broken: a code and a key, and what one load takes.
pub const fn room<const W: usize>() -> usize {
    PADDING + 8 * W
}

fn padded<const W: usize>(blocks: Blocks) -> Vec<u8> {
    let mut padded = Vec::with_capacity(blocks.data.len() + room::<W>());
    padded.extend_from_slice(blocks.data);
    padded.resize(blocks.data.len() + room::<W>(), 0);
    padded
}

/// Whether a block whose last key ends before the bit `place` ends at the bit `end`.
pub fn ends_at(place: usize, end: usize) -> bool {
    place.div_ceil(8) * 8 == end
}

/// Differing bits of two keys.
#[inline]
pub fn distance<const W: usize>(a: &[u64; W], b: &[u64; W]) -> u32 {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

pub fn unreadable(number: usize) -> Broken {
    let reason = "it does not hold the keys that it should";
    (number, reason.to_string())
}
