//! Ascending keys to compressed blocks (`simhash/archive/format/blocks.py`, where the format is described).
//!
//! A key is W words of 64 bits, left-aligned, the most significant word first.

use xxhash_rust::xxh3::xxh3_64;

use crate::bits::{BitWriter, LOADED};

pub(crate) const WORD: usize = 64;
/// Bits of the longest code (`huffman.LONGEST`).
pub(crate) const LONGEST: u32 = 12;

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
    pub(crate) width: usize,
    pub(crate) block_keys: usize,
    lengths: Vec<u8>,
    codes: Vec<u16>,
    /// For each number of LONGEST bits what it begins with.
    pub(crate) rows: Box<[Row; 1 << LONGEST]>,
    /// The same for keys of one word, where code and rest can be had in one load.
    pub(crate) short: Box<[ShortRow; 1 << LONGEST]>,
    /// For keys of one word and each symbol: the bit that goes from 0 to 1, and those below it that are a key's.
    pub(crate) masks: Box<[(u64, u64); 256]>,
}

/// A code word: its length, 0 for none, and its symbol.
#[derive(Clone, Copy, Default)]
pub(crate) struct Row {
    pub(crate) length: u8,
    pub(crate) symbol: u16,
}

/// A code word: how many bits it and the rest of the key have, 0 for too many; how far to turn the bits that begin with
/// it to the right to have the rest in its place; and its symbol.
#[derive(Clone, Copy, Default)]
pub(crate) struct ShortRow {
    pub(crate) whole: u8,
    pub(crate) turn: u8,
    pub(crate) symbol: u8,
}

impl BlockCode {
    /// None where no code has these lengths.
    pub fn new(width: usize, block_keys: usize, lengths: Vec<u8>) -> Option<Self> {
        if block_keys == 0 || width == 0 || lengths.len() != width + 1 {
            return None;
        }
        let mut order: Vec<usize> = (0..lengths.len()).filter(|&s| lengths[s] > 0).collect();
        order.sort_by_key(|&symbol| (lengths[symbol], symbol));
        let mut made = Self {
            width,
            block_keys,
            codes: vec![0; lengths.len()],
            lengths,
            rows: Box::new([Row::default(); 1 << LONGEST]),
            short: Box::new([ShortRow::default(); 1 << LONGEST]),
            masks: Box::new([(0, 0); 256]),
        };
        let mut start = 0;
        for symbol in order {
            let length = made.lengths[symbol];
            let spare = LONGEST.checked_sub(length.into())?;
            made.codes[symbol] = (start >> spare) as u16;
            let end = start + (1 << spare);
            let row = Row {
                length,
                symbol: symbol as u16,
            };
            made.rows.get_mut(start..end)?.fill(row);
            let row = made.short_row(symbol);
            made.short[start..end].fill(row);
            start = end;
        }
        if width <= WORD {
            for gap in 0..width {
                let bit = 1 << (WORD - 1 - gap);
                made.masks[gap] = (bit, (bit - 1) & u64::MAX << (WORD - width));
            }
        }
        Some(made)
    }

    fn short_row(&self, symbol: usize) -> ShortRow {
        let whole = usize::from(self.lengths[symbol]) + self.width.saturating_sub(symbol + 1);
        if self.width > WORD || whole > LOADED.into() {
            return ShortRow::default();
        }
        let turn = (2 * WORD - whole - (WORD - self.width)) % WORD;
        ShortRow {
            whole: whole as u8,
            turn: turn as u8,
            symbol: symbol as u8,
        }
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
}

fn descending(at: usize) -> String {
    format!("key {at} is smaller than the one before")
}

pub(crate) fn check(block: &[u8]) -> u32 {
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
