//! Many ranges of a table asked at once: each block that any of them touches is read, checked and decoded once.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, fadvise};

use crate::blocks::{BlockCode, Blocks, Broken, WORD};
use crate::decoding::{distance, room};

/// Blocks read and decoded at a time: their keys stay in the processor's second cache.
const PORTION: usize = 64;

/// A table in a file, open to be asked in any number of threads: where its blocks are, and what they hold.
pub struct Table {
    pub file: File,
    /// The last key of each block, one behind the other.
    pub lasts: Vec<u64>,
    /// The end of each block, counted from `start`.
    pub ends: Vec<u64>,
    pub checks: Vec<u32>,
    /// Where the first block begins in the file.
    pub start: u64,
    /// Keys in all blocks.
    pub items: usize,
}

impl Table {
    /// Where in the file a block begins, and its bytes.
    fn place(&self, block: usize) -> (u64, u32) {
        let begin = block.checked_sub(1).map_or(0, |before| self.ends[before]);
        (self.start + begin, (self.ends[block] - begin) as u32)
    }

    /// The first of the blocks from `from` on whose last key is not below a key.
    fn first_from<const W: usize>(&self, from: usize, key: &[u64; W]) -> usize {
        let (mut first, mut behind) = (from, self.ends.len());
        while first < behind {
            let middle = first + (behind - first) / 2;
            if self.lasts[W * middle..][..W] < key[..] {
                first = middle + 1;
            } else {
                behind = middle;
            }
        }
        first
    }
}

/// What a table is asked: which of its keys share their first `prefix` bits with a query, but for at most `radius` (0
/// or 1) of these, and are within `reach` bits of it.
pub struct Question<const W: usize> {
    pub queries: Vec<[u64; W]>,
    pub prefix: usize,
    pub radius: usize,
    pub reach: u32,
}

/// The ranges of keys that may hold what is asked for, ascending, any two equal or apart: from `lows` on, all with the
/// same first `prefix` bits.
pub struct Ranges<const W: usize> {
    question: Question<W>,
    lows: Vec<[u64; W]>,
    /// Whose each is.
    query: Vec<u32>,
    /// The blocks that are needed, ascending.
    blocks: Vec<usize>,
    /// The first and the last of those that each range may be in; ascending.
    first: Vec<usize>,
    last: Vec<usize>,
}

/// Queries and keys that are near enough: the query's number, the key, the distance.
#[derive(Default)]
pub struct Near<const W: usize> {
    pub queries: Vec<u32>,
    pub keys: Vec<[u64; W]>,
    pub distances: Vec<u32>,
}

/// Have the disk read these of the needed blocks while something else is done. It is a hint: that it came to nothing
/// shows when they are read.
fn announce<const W: usize>(table: &Table, ranges: &Ranges<W>, start: usize) {
    for &block in ranges.blocks.iter().skip(start).take(PORTION) {
        let (begin, size) = table.place(block);
        let _ = fadvise(
            &table.file,
            begin,
            NonZeroU64::new(size.into()),
            Advice::WillNeed,
        );
    }
}

/// Which blocks hold what is asked for; the disk is asked for the first of them.
pub fn looked_up<const W: usize>(table: &Table, question: Question<W>) -> Ranges<W> {
    let ranges = Ranges::new(table, question);
    announce(table, &ranges, 0);
    ranges
}

/// Of each range the keys within reach of its query; equal keys of a block once.
pub fn near_ranges<const W: usize>(
    code: &BlockCode,
    table: &Table,
    ranges: &Ranges<W>,
) -> Result<Near<W>, Broken> {
    let (mut data, mut found, mut open) = (Vec::new(), Near::default(), 0);
    for (portion, numbers) in ranges.blocks.chunks(PORTION).enumerate() {
        let start = portion * PORTION;
        announce(table, ranges, start + PORTION);
        let (begins, sizes): (Vec<_>, Vec<_>) =
            numbers.iter().map(|&block| table.place(block)).unzip();
        let checks: Vec<_> = numbers.iter().map(|&block| table.checks[block]).collect();
        let blocks = Blocks::new(&[], &sizes, &checks);
        let broken = |(block, reason): Broken| (numbers[block], reason);
        read(&table.file, &begins, &sizes, &mut data, room::<W>()).map_err(broken)?;
        let before = numbers[numbers.len() - 1] * code.block_keys;
        let count =
            (numbers.len() - 1) * code.block_keys + (table.items - before).min(code.block_keys);
        let askers: Vec<_> = (start..start + numbers.len())
            .map(|block| ranges.of_block(&mut open, block))
            .collect();
        let mut near = || {
            let mut jobs = code.jobs(&data, blocks, count)?;
            for (job, some) in jobs.iter_mut().zip(&askers) {
                job.stop = ranges.highest(some);
            }
            let lows: Vec<_> = askers.iter().map(|some| ranges.lows[some.start]).collect();
            let jobs = code.seek(&data, &jobs, &lows, ranges.question.prefix)?;
            code.read_blocks(&data, &jobs, |block, keys| {
                ranges.compare(askers[block].clone(), keys, &mut found);
            })
        };
        near().map_err(broken)?;
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
) -> Result<(), Broken> {
    let whole: usize = sizes.iter().map(|&size| size as usize).sum();
    data.resize(whole + room, 0);
    let (mut at, mut block) = (0, 0);
    while block < begins.len() {
        let (first, begin) = (block, begins[block]);
        let mut end = begin;
        while block < begins.len() && begins[block] == end {
            end += u64::from(sizes[block]);
            block += 1;
        }
        let size = (end - begin) as usize;
        file.read_exact_at(&mut data[at..at + size], begin)
            .map_err(|error| (first, format!("it cannot be read: {error}")))?;
        at += size;
    }
    Ok(())
}

impl<const W: usize> Ranges<W> {
    fn new(table: &Table, question: Question<W>) -> Self {
        let (kept, blocks) = (question.kept(), table.ends.len());
        let mut ranges = Self {
            question,
            lows: Vec::new(),
            query: Vec::new(),
            blocks: Vec::new(),
            first: Vec::new(),
            last: Vec::new(),
        };
        let mut first = 0;
        for (low, query) in ranges.question.lows() {
            first = table.first_from(first, &low);
            if first == blocks {
                break;
            }
            let high: [u64; W] = std::array::from_fn(|word| low[word] | !kept[word]);
            let mut last = first;
            while last + 1 < blocks && table.lasts[W * last..][..W] <= high[..] {
                last += 1;
            }
            // Ranges ascend, so a range brings the blocks behind the last one of the range before.
            let new = ranges
                .blocks
                .last()
                .map_or(first, |&before| first.max(before + 1));
            ranges.blocks.extend(new..=last);
            let end = ranges.blocks.len() - 1;
            ranges.first.push(end - (ranges.blocks[end] - first));
            ranges.last.push(end - (ranges.blocks[end] - last));
            ranges.lows.push(low);
            ranges.query.push(query);
        }
        ranges
    }

    /// How many blocks are needed.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The numbers of those that may be in a block; `open` is the first that may be in it or behind it.
    fn of_block(&self, open: &mut usize, block: usize) -> Range<usize> {
        while *open < self.last.len() && self.last[*open] < block {
            *open += 1;
        }
        let behind = self.first[*open..]
            .iter()
            .take_while(|&&first| first <= block);
        *open..*open + behind.count()
    }

    /// The greatest key that the last of some ranges may hold.
    fn highest(&self, some: &Range<usize>) -> [u64; W] {
        let (kept, low) = (self.question.kept(), self.lows[some.end - 1]);
        std::array::from_fn(|word| low[word] | !kept[word])
    }

    /// Compare the keys of a block, in order, with the queries of some ranges.
    fn compare(&self, some: Range<usize>, keys: &[[u64; W]], found: &mut Near<W>) {
        let mut from = 0;
        for range in some {
            let low = &self.lows[range];
            let query = &self.question.queries[self.query[range] as usize];
            from += keys[from..].partition_point(|key| key < low);
            let mut before = None;
            for key in keys[from..]
                .iter()
                .take_while(|key| self.question.leads(key, low))
            {
                let distance = distance(key, query);
                if distance <= self.question.reach && before != Some(key) {
                    found.queries.push(self.query[range]);
                    found.keys.push(*key);
                    found.distances.push(distance);
                }
                before = Some(key);
            }
        }
    }
}

impl<const W: usize> Question<W> {
    /// The first `prefix` bits of a key.
    fn kept(&self) -> [u64; W] {
        std::array::from_fn(|word| {
            let bits = self.prefix.saturating_sub(WORD * word).min(WORD);
            !u64::MAX.checked_shr(bits as u32).unwrap_or(0)
        })
    }

    /// Where its ranges begin, ascending, and whose each is: each query's own prefix, and with `radius` each with one
    /// bit of it flipped.
    fn lows(&self) -> Vec<([u64; W], u32)> {
        let kept = self.kept();
        let flips = if self.radius > 0 { self.prefix } else { 0 };
        let mut found = Vec::with_capacity(self.queries.len() * (flips + 1));
        for (number, query) in self.queries.iter().enumerate() {
            let own: [u64; W] = std::array::from_fn(|word| query[word] & kept[word]);
            found.push((own, number as u32));
            for bit in 0..flips {
                let mut flipped = own;
                flipped[bit / WORD] ^= 1 << (WORD - 1 - bit % WORD);
                found.push((flipped, number as u32));
            }
        }
        found.sort_unstable();
        found
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
