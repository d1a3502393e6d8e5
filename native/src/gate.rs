//! The gate: counts of features with a cap, and their simhash (`simhash/fingerprint.py`).

use std::collections::HashMap;

use foldhash::fast::RandomState;

const BLOCK: usize = 16;
const BLOCK_LEVELS: usize = 4;

/// How often each of the 64 bits was set, bit-sliced: plane i holds bit i of all 64 counts.
///
/// A carry-save adder takes sixteen hashes at a time: five logical operations a hash, where 64 sums take 64 additions
/// (Harley and Seal's population count, turned by 90 degrees).
struct BitCounts {
    planes: [u64; 64],
    block: [u64; BLOCK],
    waiting: usize,
    added: u64,
}

impl BitCounts {
    fn new() -> Self {
        Self {
            planes: [0; 64],
            block: [0; BLOCK],
            waiting: 0,
            added: 0,
        }
    }

    #[inline]
    fn add(&mut self, hash: u64) {
        self.block[self.waiting] = hash;
        self.waiting += 1;
        self.added += 1;
        if self.waiting == BLOCK {
            self.merge();
        }
    }

    fn merge(&mut self) {
        let mut carries = std::mem::replace(&mut self.block, [0; BLOCK]);
        self.waiting = 0;
        for level in 0..BLOCK_LEVELS {
            for i in 0..BLOCK >> (level + 1) {
                let (a, b, c) = (self.planes[level], carries[2 * i], carries[2 * i + 1]);
                self.planes[level] = a ^ b ^ c;
                carries[i] = (a & b) | ((a ^ b) & c);
            }
        }
        let mut carry = carries[0];
        for plane in &mut self.planes[BLOCK_LEVELS..] {
            (*plane, carry) = (*plane ^ carry, *plane & carry);
            if carry == 0 {
                break;
            }
        }
    }

    /// How often this bit was set.
    fn of(&self, bit: u32) -> u64 {
        self.planes
            .iter()
            .enumerate()
            .map(|(level, plane)| (plane >> bit & 1) << level)
            .sum()
    }
}

/// The features of one text.
pub struct Gate {
    /// Seeded at random: nobody can choose words that all fall into one bucket. Counts do not depend on the order.
    counts: HashMap<u64, u64, RandomState>,
    bits: BitCounts,
    cap: u64,
    /// All features, each as often as it occurs.
    pub total: u64,
}

impl Gate {
    pub fn new(cap: u64, expected: usize) -> Self {
        let counts = HashMap::with_capacity_and_hasher(expected, RandomState::default());
        Self {
            counts,
            bits: BitCounts::new(),
            cap,
            total: 0,
        }
    }

    #[inline]
    pub fn add(&mut self, feature: u64) {
        self.total += 1;
        let count = self.counts.entry(feature).or_insert(0);
        if *count < self.cap {
            *count += 1;
            self.bits.add(feature);
        }
    }

    pub fn distinct(&self) -> usize {
        self.counts.len()
    }

    /// The fingerprint: a bit is 1 where more weight has it set than not, `zero_sum` where it is as much.
    pub fn simhash(&mut self, width: u32, zero_sum: bool) -> u64 {
        self.bits.merge();
        let added = self.bits.added;
        let is_set = |bit: &u32| {
            let twice = 2 * self.bits.of(*bit);
            twice > added || (zero_sum && twice == added)
        };
        (0..width)
            .filter(is_set)
            .fold(0, |fingerprint, bit| fingerprint | 1 << bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_counts_are_those_of_a_loop() {
        let hashes: Vec<u64> = (1..1000u64)
            .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15))
            .collect();
        let mut counts = BitCounts::new();
        hashes.iter().for_each(|&hash| counts.add(hash));
        counts.merge();
        for bit in 0..64 {
            assert_eq!(
                counts.of(bit),
                hashes.iter().filter(|hash| *hash >> bit & 1 == 1).count() as u64
            );
        }
    }

    #[test]
    fn counts_are_capped_and_ties_go_as_told() {
        let mut gate = Gate::new(2, 0);
        [1, 1, 1, 2, 2]
            .into_iter()
            .for_each(|feature| gate.add(feature));
        assert_eq!((gate.total, gate.distinct()), (5, 2));
        assert_eq!(
            (gate.simhash(3, false), gate.simhash(3, true)),
            (0b000, 0b011)
        );
    }
}
