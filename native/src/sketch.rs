//! The verifier and its band keys: one-permutation MinHash of token n-grams, as `simhash/signature/minhash.py` specifies it.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::hashing::{MULTIPLIERS, gram_hash, mix64};

const EMPTY: u64 = u64::MAX;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const ATTEMPTS: u64 = 1024;
/// So many of the bins that an empty bin asks are kept in a table: a page of 60 tokens asks 1,000 times.
const KEPT: usize = 32;
/// So often an empty bin of a sketch that folds asks, before it asks among so many times fewer.
const COARSER: usize = 8;
const LEAST_GROUP: usize = 8;
const GROUPS: usize = 32;
const BIT_POSITIONS: usize = 32;
const MOST_TOKENS: usize = MULTIPLIERS.len();

/// `simhash.signature.minhash.MinHashSketch`.
#[derive(Clone, Copy)]
pub struct Shape {
    pub n: usize,
    pub bins: usize,
    pub bands: usize,
    pub rows: usize,
    pub fold: usize,
}

impl Shape {
    /// Bins of whose minima the verifier's bits are made.
    fn kept(self) -> usize {
        self.bins * self.fold
    }

    fn minima(self) -> usize {
        self.kept().next_power_of_two()
    }
}

/// The bin of so many that an empty one asks at this attempt, from 1 on.
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

/// The bins that each one asks at each step, of ever fewer, down to one; made once for each number of bins.
fn asked(bins: usize) -> &'static [Vec<[u16; COARSER]>] {
    static TABLES: [OnceLock<Vec<Vec<[u16; COARSER]>>>; 17] = [const { OnceLock::new() }; 17];
    let of_step = |(step, lenders)| {
        let attempt = |at: usize| (COARSER * step + at + 1) as u64;
        let of_bin = |bin| std::array::from_fn(|at| donor(lenders, bin, attempt(at)) as u16);
        (0..bins).map(of_bin).collect()
    };
    let fewer = |&lenders: &usize| (lenders > 1).then(|| lenders.div_ceil(COARSER));
    let steps = || std::iter::successors(Some(bins), fewer).enumerate();
    TABLES[bins.trailing_zeros() as usize].get_or_init(|| steps().map(of_step).collect())
}

/// The least of some minima.
fn least(minima: &[u64]) -> u64 {
    *minima.iter().min().unwrap_or(&EMPTY)
}

/// The minimum of the first of these bins that is not empty; EMPTY where all are. All are looked at: to stop at the first
/// would cost more than the rest of them.
#[inline(always)]
fn first_of(lenders: &[u64], asked: &[u16; COARSER]) -> u64 {
    asked
        .iter()
        .rev()
        .fold(EMPTY, |lent, &at| match lenders[usize::from(at)] {
            EMPTY => lent,
            minimum => minimum,
        })
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
        Self {
            shape,
            shift: 64 - shape.minima().trailing_zeros(),
            minima: vec![EMPTY; shape.minima()],
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
        let Shape { bins, fold, .. } = self.shape;
        let minima = if fold == 1 {
            self.borrowed()
        } else {
            self.lent_by_all()
        };
        let mut bits = vec![0; bins];
        for (part, minima) in minima.chunks(bins).enumerate() {
            for (at, (bit, minimum)) in bits.iter_mut().zip(minima).enumerate() {
                *bit ^= (minimum >> ((part * (bins + 1) + at) % BIT_POSITIONS)) as u8 & 1;
            }
        }
        let packed = bits
            .chunks(8)
            .map(|byte| byte.iter().fold(0, |value, bit| value << 1 | bit));
        Some(
            packed
                .chain(self.band_keys().flat_map(u32::to_be_bytes))
                .collect(),
        )
    }

    /// The minima of the bins; of an empty one that of the first bin it asks that is not.
    fn borrowed(&self) -> Vec<u64> {
        let bins = self.minima.len();
        let donors = first_donors(bins);
        let borrowed = |bin: usize| {
            if self.minima[bin] != EMPTY {
                return self.minima[bin];
            }
            let kept = &donors[bin * KEPT..][..KEPT];
            let later = (KEPT as u64 + 1..=ATTEMPTS).map(|attempt| donor(bins, bin, attempt));
            let asked = kept.iter().map(|&donor| usize::from(donor)).chain(later);
            let mut minima = asked.map(|bin| self.minima[bin]);
            minima.find(|&minimum| minimum != EMPTY).unwrap_or(0)
        };
        (0..self.shape.kept()).map(borrowed).collect()
    }

    /// The same of a sketch that folds: an empty bin asks ever coarser ones.
    fn lent_by_all(&self) -> Vec<u64> {
        let mut lent = self.minima[..self.shape.kept()].to_vec();
        let mut lenders = Cow::Borrowed(&self.minima);
        for asked in asked(self.minima.len()) {
            if !lent.contains(&EMPTY) {
                break;
            }
            for (minimum, asked) in lent.iter_mut().zip(asked) {
                if *minimum == EMPTY {
                    *minimum = first_of(&lenders, asked);
                }
            }
            lenders = Cow::Owned(lenders.chunks(COARSER).map(least).collect());
        }
        lent
    }

    fn band_keys(&self) -> impl Iterator<Item = u32> {
        let group = LEAST_GROUP.max(self.minima.len() / GROUPS);
        let groups: Vec<u64> = self.minima.chunks(group).map(least).collect();
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
