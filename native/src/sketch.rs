//! The verifier and its band keys: one-permutation MinHash of token n-grams, as `simhash/signature/minhash.py` specifies it.

use std::sync::OnceLock;

use crate::hashing::{MULTIPLIERS, gram_hash, mix64};

const EMPTY: u64 = u64::MAX;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const ATTEMPTS: u64 = 1024;
/// So many of the bins that an empty bin asks are kept in a table: a page of 60 tokens asks 1,000 times.
const KEPT: usize = 32;
const GROUP_BINS: usize = 8;
const BIT_POSITIONS: usize = 32;
const MOST_TOKENS: usize = MULTIPLIERS.len();

/// `simhash.signature.minhash.MinHashSketch`.
#[derive(Clone, Copy)]
pub struct Shape {
    pub n: usize,
    pub bins: usize,
    pub bands: usize,
    pub rows: usize,
}

/// The bin that an empty one asks at this attempt, from 1 on.
fn donor(bins: usize, bin: usize, attempt: u64) -> usize {
    mix64((bin as u64 * 1024 + attempt).wrapping_mul(GOLDEN)) as usize % bins
}

/// The first `KEPT` of each bin, one bin after the other; made once for each number of bins.
fn first_donors(bins: usize) -> &'static [u16] {
    static TABLES: [OnceLock<Vec<u16>>; 17] = [const { OnceLock::new() }; 17];
    let made = || {
        let of_bin = |bin| (1..=KEPT as u64).map(move |attempt| donor(bins, bin, attempt) as u16);
        (0..bins).flat_map(of_bin).collect()
    };
    TABLES[bins.trailing_zeros() as usize].get_or_init(made)
}

/// Minima of a text's n-grams, token by token.
pub struct Sketch {
    shape: Shape,
    shift: u32,
    minima: Vec<u64>,
    /// The last n tokens, the latest at the end.
    window: [u64; MOST_TOKENS],
    tokens: usize,
}

impl Sketch {
    pub fn new(shape: Shape) -> Self {
        let shift = 64 - shape.bins.trailing_zeros();
        Self {
            shape,
            shift,
            minima: vec![EMPTY; shape.bins],
            window: [0; MOST_TOKENS],
            tokens: 0,
        }
    }

    #[inline]
    pub fn add(&mut self, token: u64) {
        let [_, b, c, d, e] = self.window;
        self.window = [b, c, d, e, token];
        self.tokens += 1;
        if self.tokens >= self.shape.n {
            self.take(self.shape.n);
        }
    }

    #[inline]
    fn take(&mut self, n: usize) {
        let gram = gram_hash(&self.window[MOST_TOKENS - n..]);
        let minimum = &mut self.minima[(gram >> self.shift) as usize];
        *minimum = (*minimum).min(gram & ((1 << self.shift) - 1));
    }

    /// The number, most significant byte first; None without tokens.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        if self.tokens == 0 {
            return None;
        }
        if self.tokens < self.shape.n {
            self.take(self.tokens);
        }
        let bits: Vec<u8> = (0..self.shape.bins).map(|bin| self.bit(bin)).collect();
        let packed = bits
            .chunks(8)
            .map(|byte| byte.iter().fold(0, |value, bit| value << 1 | bit));
        Some(
            packed
                .chain(self.band_keys().flat_map(u32::to_be_bytes))
                .collect(),
        )
    }

    fn bit(&self, bin: usize) -> u8 {
        (self.borrowed(bin) >> (bin % BIT_POSITIONS) & 1) as u8
    }

    /// The minimum of a bin; of an empty one that of the first bin it asks that is not.
    fn borrowed(&self, bin: usize) -> u64 {
        if self.minima[bin] != EMPTY {
            return self.minima[bin];
        }
        let bins = self.shape.bins;
        let kept = &first_donors(bins)[bin * KEPT..][..KEPT];
        let later = (KEPT as u64 + 1..=ATTEMPTS).map(|attempt| donor(bins, bin, attempt));
        let asked = kept.iter().map(|&donor| usize::from(donor)).chain(later);
        let mut minima = asked.map(|bin| self.minima[bin]);
        minima.find(|&minimum| minimum != EMPTY).unwrap_or(0)
    }

    fn band_keys(&self) -> impl Iterator<Item = u32> {
        let least = |bins: &[u64]| *bins.iter().min().unwrap_or(&EMPTY);
        let groups: Vec<u64> = self.minima.chunks(GROUP_BINS).map(least).collect();
        let (bands, rows) = (self.shape.bands, self.shape.rows);
        (0..bands).map(move |band| {
            let rows = &groups[band * rows..][..rows];
            if rows.iter().all(|&group| group == EMPTY) {
                0
            } else {
                (gram_hash(rows) >> 32) as u32
            }
        })
    }
}
