//! Ascending keys to compressed blocks and back (`simhash/compressed/blocks.py`, where the format is described).
//!
//! A key is W words of 64 bits, left-aligned, the most significant word first.

use xxhash_rust::xxh3::xxh3_64;

use crate::bits::{BitWriter, PADDING, front, peek};

const WORD: usize = 64;
/// Bits of the longest code (`huffman.LONGEST`).
const LONGEST: u32 = 12;
/// Bits of a key's code and rest that one load from any bit on surely has.
const LOADED: u32 = 57;

/// What is wrong with a block, and its number.
pub type Broken = (usize, String);

/// Blocks as they stand in a file, one behind the other, with the size and check of each.
#[derive(Clone, Copy)]
pub struct Blocks<'a> {
    pub data: &'a [u8],
    pub sizes: &'a [u32],
    pub checks: &'a [u32],
}

impl<'a> Blocks<'a> {
    pub fn new(data: &'a [u8], sizes: &'a [u32], checks: &'a [u32]) -> Self {
        Self {
            data,
            sizes,
            checks,
        }
    }
}

/// A canonical code over the symbols 0 to `width`, and the blocks that it is for.
pub struct BlockCode {
    width: usize,
    block_keys: usize,
    lengths: Vec<u8>,
    codes: Vec<u16>,
    /// For each number of LONGEST bits what it begins with.
    rows: Vec<Row>,
}

/// A code word: its length in bits, 0 for none; its symbol; and how many bits it and the rest of the key have.
#[derive(Clone, Copy, Default)]
struct Row {
    length: u8,
    symbol: u16,
    whole: u16,
}

impl BlockCode {
    /// None where no code has these lengths.
    pub fn new(width: usize, block_keys: usize, lengths: Vec<u8>) -> Option<Self> {
        let mut order: Vec<usize> = (0..lengths.len()).filter(|&s| lengths[s] > 0).collect();
        order.sort_by_key(|&symbol| (lengths[symbol], symbol));
        let mut codes = vec![0; lengths.len()];
        let mut rows = vec![Row::default(); 1 << LONGEST];
        let mut start = 0;
        for symbol in order {
            let spare = LONGEST.checked_sub(lengths[symbol].into())?;
            codes[symbol] = (start >> spare) as u16;
            let end = start + (1 << spare);
            let length = lengths[symbol];
            let whole = u16::from(length) + width.saturating_sub(symbol + 1) as u16;
            let symbol = symbol as u16;
            let row = Row {
                length,
                symbol,
                whole,
            };
            rows.get_mut(start..end)?.fill(row);
            start = end;
        }
        let fits = block_keys > 0 && width > 0 && lengths.len() == width + 1;
        fits.then_some(Self {
            width,
            block_keys,
            lengths,
            codes,
            rows,
        })
    }

    /// The words of a key.
    pub fn words(&self) -> usize {
        self.width.div_ceil(WORD)
    }

    /// The blocks' bytes, and the size and check of each.
    pub fn encode<const W: usize>(
        &self,
        keys: &[[u64; W]],
    ) -> Result<(Vec<u8>, Vec<u32>, Vec<u32>), String> {
        let mut out = BitWriter::default();
        out.bytes.reserve(keys.len() * W * 6);
        let (mut sizes, mut checks) = (Vec::new(), Vec::new());
        for (number, block) in keys.chunks(self.block_keys).enumerate() {
            let begin = out.bytes.len();
            let at = number * self.block_keys;
            if at > 0 && block[0] < keys[at - 1] {
                return Err(descending(at));
            }
            self.put_rest(&mut out, &block[0], 0);
            for i in 1..block.len() {
                let gap = self
                    .gap(&block[i - 1], &block[i])
                    .ok_or_else(|| descending(at + i))?;
                if self.lengths[gap] == 0 {
                    return Err(format!(
                        "the code was made for other keys: it has none for h = {gap}"
                    ));
                }
                out.put(self.codes[gap].into(), self.lengths[gap].into());
                self.put_rest(&mut out, &block[i], gap + 1);
            }
            out.align();
            sizes.push((out.bytes.len() - begin) as u32);
            checks.push(check(&out.bytes[begin..]));
        }
        Ok((out.bytes, sizes, checks))
    }

    /// The bits of a key from `start` on.
    #[inline]
    fn put_rest<const W: usize>(&self, out: &mut BitWriter, key: &[u64; W], start: usize) {
        for word in start / WORD..W {
            let end = (self.width - WORD * word).min(WORD);
            let begin = start.saturating_sub(WORD * word);
            if begin < end {
                out.put(
                    key[word] << begin >> begin >> (WORD - end),
                    (end - begin) as u32,
                );
            }
        }
    }

    /// The position of the first bit that differs, the width for equals; None where `after` is the smaller one.
    #[inline]
    fn gap<const W: usize>(&self, before: &[u64; W], after: &[u64; W]) -> Option<usize> {
        for word in 0..W {
            if before[word] != after[word] {
                let position = (before[word] ^ after[word]).leading_zeros() as usize;
                return (before[word] < after[word]).then_some(WORD * word + position);
            }
        }
        Some(self.width)
    }

    /// The keys, `count` in all, of blocks of these sizes and checks.
    pub fn decode<const W: usize>(
        &self,
        blocks: Blocks,
        count: usize,
    ) -> Result<Vec<[u64; W]>, Broken> {
        let mut keys = Vec::with_capacity(count);
        self.each(blocks, count, |key| {
            keys.push(key);
            true
        })?;
        Ok(keys)
    }

    /// Of the same the keys from `low` to `high` within `reach` bits of `query`.
    pub fn near<const W: usize>(
        &self,
        blocks: Blocks,
        count: usize,
        [low, high, query]: [[u64; W]; 3],
        reach: u32,
    ) -> Result<Vec<[u64; W]>, Broken> {
        let mut keys = Vec::new();
        self.each(blocks, count, |key: [u64; W]| {
            let differing = key.iter().zip(query).map(|(a, b)| (a ^ b).count_ones());
            if key >= low && key <= high && differing.sum::<u32>() <= reach {
                keys.push(key);
            }
            key <= high
        })?;
        Ok(keys)
    }

    /// Hand on the keys of blocks, of each while more are wanted. All blocks are checked before.
    fn each<const W: usize>(
        &self,
        blocks: Blocks,
        count: usize,
        mut take: impl FnMut([u64; W]) -> bool,
    ) -> Result<(), Broken> {
        let mut begin = 0;
        for (number, (&size, &stored)) in blocks.sizes.iter().zip(blocks.checks).enumerate() {
            let end = begin + size as usize;
            let found = blocks.data.get(begin..end).map(check);
            if found != Some(stored) {
                let found = found.unwrap_or_default();
                return Err((
                    number,
                    format!("its check is {found:08x}, not {stored:08x}"),
                ));
            }
            begin = end;
        }
        let mut padded = Vec::with_capacity(blocks.data.len() + PADDING + 8 * W);
        padded.extend_from_slice(blocks.data);
        padded.resize(blocks.data.len() + PADDING + 8 * W, 0);
        let mut begin = 0;
        for (number, &size) in blocks.sizes.iter().enumerate() {
            let end = begin + size as usize;
            let held = count
                .saturating_sub(number * self.block_keys)
                .min(self.block_keys);
            self.read_block(&padded, 8 * begin, 8 * end, held, &mut take)
                .ok_or_else(|| {
                    (
                        number,
                        "it does not hold the keys that it should".to_string(),
                    )
                })?;
            begin = end;
        }
        Ok(())
    }

    /// One block between two bits, key by key while `take` wants more; None where it is not one of `held` keys.
    #[inline]
    fn read_block<const W: usize>(
        &self,
        data: &[u8],
        begin: usize,
        end: usize,
        held: usize,
        mut take: impl FnMut([u64; W]) -> bool,
    ) -> Option<()> {
        if held == 0 || begin + self.width > end {
            return None;
        }
        let mut key = [0; W];
        let mut place = self.read_rest(data, begin, &mut key, 0);
        if !take(key) {
            return Some(());
        }
        for _ in 1..held {
            let bits = peek(data, place);
            let row = self.rows[(bits >> (WORD as u32 - LONGEST)) as usize];
            let gap = row.symbol as usize;
            if gap < self.width {
                let before = key;
                if W == 1 && u32::from(row.whole) <= LOADED {
                    let rest = front(
                        bits << row.length,
                        u32::from(row.whole) - u32::from(row.length),
                    );
                    key[0] = key[0] & !(u64::MAX >> gap)
                        | 1 << (WORD - 1 - gap)
                        | rest << (WORD - self.width);
                } else {
                    key[gap / WORD] |= 1 << (WORD - 1 - gap % WORD);
                    self.read_rest(data, place + row.length as usize, &mut key, gap + 1);
                }
                if key <= before {
                    return None;
                }
            }
            place += row.whole as usize;
            if place > end || row.length == 0 {
                return None;
            }
            if !take(key) {
                return Some(());
            }
        }
        (place.div_ceil(8) * 8 == end).then_some(())
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

fn descending(at: usize) -> String {
    format!("key {at} is smaller than the one before")
}

fn check(block: &[u8]) -> u32 {
    xxh3_64(block) as u32
}

/// How often each first differing bit occurs among ascending keys; behind them the equals.
pub fn gap_counts<const W: usize>(keys: &[[u64; W]], width: usize) -> Result<Vec<u64>, String> {
    let mut counts = vec![0; width + 1];
    for (i, pair) in keys.windows(2).enumerate() {
        let word = (0..W).find(|&word| pair[0][word] != pair[1][word]);
        let gap = match word {
            None => width,
            Some(word) if pair[0][word] > pair[1][word] => return Err(descending(i + 1)),
            Some(word) => WORD * word + (pair[0][word] ^ pair[1][word]).leading_zeros() as usize,
        };
        *counts
            .get_mut(gap)
            .ok_or("a key is wider than it should be")? += 1;
    }
    Ok(counts)
}

/// Keys of W words, as NumPy has them in memory.
pub fn keys_in<const W: usize>(bytes: &[u8]) -> Vec<[u64; W]> {
    let words = |key: &[u8]| {
        let mut found = [0; W];
        for (word, bytes) in found.iter_mut().zip(key.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        }
        found
    };
    bytes.chunks_exact(8 * W).map(words).collect()
}

/// The inverse of `keys_in`.
pub fn bytes_of<const W: usize>(keys: &[[u64; W]]) -> Vec<u8> {
    let mut bytes = vec![0; 8 * W * keys.len()];
    let words = keys.as_flattened().iter();
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_python_docstrings_example_comes_out() {
        let mut lengths = vec![0; 9];
        (lengths[6], lengths[8]) = (1, 1);
        let code = BlockCode::new(8, 3, lengths).unwrap();
        let keys = [0b1101_1001, 0b1101_1011, 0b1101_1011].map(|key: u64| [key << 56]);
        let (data, sizes, checks) = code.encode(&keys).unwrap();
        assert_eq!(
            (data.as_slice(), sizes.as_slice()),
            (&[0b1101_1001, 0b0110_0000][..], &[2][..])
        );
        let blocks = Blocks::new(&data, &sizes, &checks);
        assert_eq!(code.decode::<1>(blocks, 3).unwrap(), keys);
        assert!(code.encode(&[[2 << 56], [1 << 56]]).is_err());
    }
}
