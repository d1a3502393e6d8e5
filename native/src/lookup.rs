//! Many ranges of a table asked at once: each block that any of them touches is read, checked and decoded once.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::blocks::{BlockCode, Blocks, Broken, WORD};
use crate::decoding::{distance, room};

/// Blocks read and decoded at a time: their keys stay in the processor's second cache.
const PORTION: usize = 64;

/// Why a question has no answer.
pub enum Fault {
    Broken(Broken),
    Unread(io::Error),
}

/// The blocks that are needed, ascending: where each begins in the file, its size and check.
pub struct Places<'a> {
    pub begins: &'a [u64],
    pub sizes: &'a [u32],
    pub checks: &'a [u32],
    /// Keys in all of them.
    pub count: usize,
}

/// Ranges of keys, ascending, any two equal or apart: from `lows` on, all with the same first `prefix` bits.
pub struct Ranges<'a, const W: usize> {
    /// The first and the last of the needed blocks that each may be in; ascending.
    pub first: &'a [u32],
    pub last: &'a [u32],
    pub lows: &'a [[u64; W]],
    pub prefix: usize,
    /// What each range's keys are compared with.
    pub queries: &'a [[u64; W]],
    pub reach: u32,
}

/// Ranges and keys that are near enough: the range's number, the key, the distance.
#[derive(Default)]
pub struct Near<const W: usize> {
    pub ranges: Vec<u32>,
    pub keys: Vec<[u64; W]>,
    pub distances: Vec<u32>,
}

/// Of each range the keys within reach of its query; equal keys of a block once.
pub fn near_ranges<const W: usize>(
    code: &BlockCode,
    file: &File,
    places: &Places,
    ranges: &Ranges<W>,
) -> Result<Near<W>, Fault> {
    let (mut data, mut found, mut open) = (Vec::new(), Near::default(), 0);
    for start in (0..places.begins.len()).step_by(PORTION) {
        let end = (start + PORTION).min(places.begins.len());
        let blocks = Blocks {
            data: &[],
            sizes: &places.sizes[start..end],
            checks: &places.checks[start..end],
        };
        let begins = &places.begins[start..end];
        read(file, begins, blocks.sizes, &mut data, room::<W>()).map_err(Fault::Unread)?;
        let count = places.count - (start * code.block_keys).min(places.count);
        let askers: Vec<_> = (start..end)
            .map(|block| ranges.of_block(&mut open, block))
            .collect();
        let mut near = || {
            let mut jobs = code.jobs(&data, blocks, count)?;
            for (job, some) in jobs.iter_mut().zip(&askers) {
                job.stop = ranges.highest(some);
            }
            let lows: Vec<_> = askers
                .iter()
                .map(|some| {
                    ranges
                        .lows
                        .get(some.start)
                        .copied()
                        .unwrap_or([u64::MAX; W])
                })
                .collect();
            let jobs = code.seek(&data, &jobs, &lows, ranges.prefix)?;
            code.read_blocks(&data, &jobs, |block, keys| {
                ranges.compare(askers[block].clone(), keys, &mut found);
            })
        };
        near().map_err(|(block, reason)| Fault::Broken((start + block, reason)))?;
    }
    Ok(found)
}

/// The bytes of blocks, one behind the other, and room to look beyond; neighbours are read at once.
fn read(
    file: &File,
    begins: &[u64],
    sizes: &[u32],
    data: &mut Vec<u8>,
    room: usize,
) -> io::Result<()> {
    let whole: usize = sizes.iter().map(|&size| size as usize).sum();
    data.resize(whole + room, 0);
    let (mut at, mut block) = (0, 0);
    while block < begins.len() {
        let begin = begins[block];
        let mut end = begin;
        while block < begins.len() && begins[block] == end {
            end += u64::from(sizes[block]);
            block += 1;
        }
        let size = (end - begin) as usize;
        file.read_exact_at(&mut data[at..at + size], begin)?;
        at += size;
    }
    Ok(())
}

impl<const W: usize> Ranges<'_, W> {
    /// The numbers of those that may be in a block; `open` is the first that may be in it or behind it.
    fn of_block(&self, open: &mut usize, block: usize) -> Range<usize> {
        while *open < self.last.len() && (self.last[*open] as usize) < block {
            *open += 1;
        }
        let behind = self.first[*open..]
            .iter()
            .take_while(|&&first| first as usize <= block);
        *open..*open + behind.count()
    }

    /// The greatest key that the last of some ranges may hold.
    fn highest(&self, some: &Range<usize>) -> [u64; W] {
        let mut key = some.end.checked_sub(1).map_or([0; W], |at| self.lows[at]);
        for (word, bits) in key.iter_mut().enumerate() {
            let kept = self.prefix.saturating_sub(WORD * word).min(WORD);
            *bits |= u64::MAX.checked_shr(kept as u32).unwrap_or(0);
        }
        key
    }

    /// Compare the keys of a block, in order, with the queries of some ranges.
    fn compare(&self, some: Range<usize>, keys: &[[u64; W]], found: &mut Near<W>) {
        let mut from = 0;
        for range in some {
            let (low, query) = (&self.lows[range], &self.queries[range]);
            from += keys[from..].partition_point(|key| key < low);
            let mut before = None;
            for key in keys[from..].iter().take_while(|key| self.leads(key, low)) {
                let distance = distance(key, query);
                if distance <= self.reach && before != Some(key) {
                    found.ranges.push(range as u32);
                    found.keys.push(*key);
                    found.distances.push(distance);
                }
                before = Some(key);
            }
        }
    }

    /// Whether two keys have the same first `prefix` bits.
    #[inline]
    fn leads(&self, a: &[u64; W], b: &[u64; W]) -> bool {
        (0..W).all(|word| {
            let bits = self.prefix.saturating_sub(WORD * word).min(WORD);
            bits == 0 || (a[word] ^ b[word]) >> (WORD - bits) == 0
        })
    }
}
