//! The gate: counts of features with a cap, and their simhash (`simhash/signature/fingerprint.py`).

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Hashes that are added side by side: a vector register or two.
const LANES: usize = 4;
const ROWS: usize = 16;
const BLOCK: usize = LANES * ROWS;
/// Planes of every text; those above are made for texts of more than about 1,000 features.
const FIRST_PLANES: usize = 8;

type Row = [u64; LANES];

/// How often each of the 64 bits was set, bit-sliced: in each lane, plane i holds bit i of all 64 counts.
///
/// A carry-save adder takes sixteen rows at a time: five logical operations a row, where 64 sums take 64 additions a
/// hash (Harley and Seal's population count, turned by 90 degrees). Short texts pay for what is cleared at the
/// beginning and added up at the end, so little is.
pub struct BitCounts {
    planes: [Row; FIRST_PLANES],
    higher: Vec<Row>,
    block: [Row; ROWS],
    waiting: usize,
    added: u64,
}

impl BitCounts {
    pub fn new() -> Self {
        Self {
            planes: [[0; LANES]; FIRST_PLANES],
            higher: Vec::new(),
            block: [[0; LANES]; ROWS],
            waiting: 0,
            added: 0,
        }
    }

    #[inline(always)]
    pub fn add(&mut self, hash: u64) {
        self.block.as_flattened_mut()[self.waiting] = hash;
        self.waiting += 1;
        if self.waiting == BLOCK {
            self.merge();
        }
    }

    /// The same for many; where it stands in its block is kept in a register.
    #[inline(always)]
    pub fn add_all(&mut self, hashes: impl Iterator<Item = u64>) {
        let mut waiting = self.waiting;
        for hash in hashes {
            self.block.as_flattened_mut()[waiting] = hash;
            waiting += 1;
            if waiting == BLOCK {
                self.waiting = waiting;
                self.merge();
                waiting = 0;
            }
        }
        self.waiting = waiting;
    }

    /// Not in line: the caller's loop keeps its registers.
    #[inline(never)]
    fn merge(&mut self) {
        let [ones, twos, fours, eights, rest @ ..] = &mut self.planes;
        let carried: [Row; 8] = carries(ones, &self.block);
        let carried: [Row; 4] = carries(twos, &carried);
        let carried: [Row; 2] = carries(fours, &carried);
        let [mut carried] = carries(eights, &carried);
        self.added += self.waiting as u64;
        self.waiting = 0;
        for plane in rest {
            (*plane, carried) = half_adder(*plane, carried);
        }
        if carried != [0; LANES] {
            self.carry(carried);
        }
    }

    #[cold]
    fn carry(&mut self, mut carried: Row) {
        for plane in &mut self.higher {
            (*plane, carried) = half_adder(*plane, carried);
        }
        if carried != [0; LANES] {
            self.higher.push(carried);
        }
    }

    /// Add what still waits.
    fn flush(&mut self) {
        self.block.as_flattened_mut()[self.waiting..].fill(0);
        self.merge();
    }

    /// The fingerprint: a bit is 1 where it was set more often than not, `zero_sum` where it was as often.
    ///
    /// All lanes are added up, and all 64 counts compared with half of what was added, from the lowest plane up.
    pub fn simhash(&mut self, width: u32, zero_sum: bool) -> u64 {
        self.flush();
        let least = (self.added + u64::from(!zero_sum)).div_ceil(2);
        let levels = u64::BITS - (self.added | 1).leading_zeros();
        let (mut enough, mut left, mut right, mut both) = (u64::MAX, 0, 0, 0);
        let planes = self.planes.iter().chain(&self.higher);
        // The last planes may be of carries alone, between lanes.
        let planes = planes.chain(std::iter::repeat(&[0; LANES]));
        for (level, &[a, b, c, d]) in (0..levels).zip(planes) {
            let (first, second, count);
            (first, left) = full_adder(a, b, left);
            (second, right) = full_adder(c, d, right);
            (count, both) = full_adder(first, second, both);
            let bound = (least >> level & 1).wrapping_neg();
            enough = (count & !bound) | (!(count ^ bound) & enough);
        }
        enough & (u64::MAX >> (u64::BITS - width))
    }
}

/// Sum and carry of three bits, 64 times.
#[inline(always)]
fn full_adder(a: u64, b: u64, carry: u64) -> (u64, u64) {
    let either = a ^ b;
    (either ^ carry, (a & b) | (either & carry))
}

#[inline(always)]
fn half_adder(a: Row, b: Row) -> (Row, Row) {
    (both(a, b, |a, b| a ^ b), both(a, b, |a, b| a & b))
}

#[inline(always)]
fn both(a: Row, b: Row, operation: impl Fn(u64, u64) -> u64) -> Row {
    std::array::from_fn(|lane| operation(a[lane], b[lane]))
}

/// Add all rows to a plane: full adders take two at a time, and hand on one carry each.
#[inline(always)]
fn carries<const IN: usize, const OUT: usize>(plane: &mut Row, rows: &[Row; IN]) -> [Row; OUT] {
    std::array::from_fn(|i| {
        let (a, b) = (rows[2 * i], rows[2 * i + 1]);
        let either = both(a, b, |a, b| a ^ b);
        let carry = both(
            both(a, b, |a, b| a & b),
            both(either, *plane, |a, b| a & b),
            |a, b| a | b,
        );
        *plane = both(*plane, either, |a, b| a ^ b);
        carry
    })
}

/// A text of more different features than this has them counted by sorting: a table of millions would take five times
/// their memory while it grows.
const MOST_IN_TABLE: usize = 1 << 16;
const LEAST_SORTED: usize = 1 << 20;

/// The features of one text.
pub struct Gate {
    /// Seeded at random: nobody can choose words that all fall into one bucket. Counts do not depend on the order.
    counts: HashMap<u64, u64, RandomState>,
    many: Option<Repeated>,
    bits: BitCounts,
    cap: u64,
    /// All features, each as often as it occurs.
    pub total: u64,
}

/// Features, each as often as it occurs but at most `cap` times; sorted now and then, so that what is beyond is dropped.
struct Repeated {
    features: Vec<u64>,
    sort_at: usize,
    cap: u64,
}

impl Repeated {
    fn add(&mut self, feature: u64) {
        if self.features.len() == self.features.capacity() {
            // A quarter, where `push` would double: a child may not have as much memory as that.
            self.features.reserve_exact(self.features.len() / 4);
        }
        self.features.push(feature);
        if self.features.len() >= self.sort_at {
            self.tidy();
            self.sort_at = LEAST_SORTED.max(2 * self.features.len());
        }
    }

    /// Sort, and drop repetitions beyond the cap; how many are different.
    fn tidy(&mut self) -> usize {
        self.features.sort_unstable();
        let (mut last, mut repeated, mut distinct) = (0, 0, 0);
        self.features.retain(|&feature| {
            if distinct == 0 || feature != last {
                (last, repeated, distinct) = (feature, 0, distinct + 1);
            }
            repeated += 1;
            repeated <= self.cap
        });
        distinct
    }
}

impl Gate {
    pub fn new(cap: u64, expected: usize) -> Self {
        let counts = HashMap::with_capacity_and_hasher(expected, RandomState::default());
        Self {
            counts,
            many: None,
            bits: BitCounts::new(),
            cap,
            total: 0,
        }
    }

    #[inline]
    pub fn add(&mut self, feature: u64) {
        self.total += 1;
        if let Some(many) = &mut self.many {
            return many.add(feature);
        }
        let count = self.counts.entry(feature).or_insert(0);
        if *count < self.cap {
            *count += 1;
            self.bits.add(feature);
        }
        if self.counts.len() > MOST_IN_TABLE {
            self.leave_table();
        }
    }

    /// From here on features are sorted; those so far with their counts.
    #[cold]
    fn leave_table(&mut self) {
        let counted = std::mem::take(&mut self.counts);
        let each = |(feature, count): (u64, u64)| std::iter::repeat_n(feature, count as usize);
        self.many = Some(Repeated {
            features: counted.into_iter().flat_map(each).collect(),
            sort_at: LEAST_SORTED,
            cap: self.cap,
        });
        self.bits = BitCounts::new();
    }

    /// How many different features there are, and the fingerprint: a bit is 1 where more weight has it set than not,
    /// `zero_sum` where it is as much. Once, at the end.
    pub fn finish(&mut self, width: u32, zero_sum: bool) -> (usize, u64) {
        let mut distinct = self.counts.len();
        if let Some(many) = &mut self.many {
            distinct = many.tidy();
            self.bits.add_all(many.features.iter().copied());
        }
        (distinct, self.bits.simhash(width, zero_sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_counts_are_those_of_a_loop() {
        let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for number in [1, 63, 64, 65, 200, 1023, 1024, 1025, 4096, 5000, 70_000] {
            let mut counts = BitCounts::new();
            counts.add_all((1..=number).map(hash));
            counts.flush();
            for bit in 0..64 {
                let planes = counts.planes.iter().chain(&counts.higher).enumerate();
                let of_lane = |plane: &Row| plane.map(|lane| lane >> bit & 1).iter().sum::<u64>();
                let count: u64 = planes.map(|(level, plane)| of_lane(plane) << level).sum();
                let expected = (1..=number).filter(|&i| hash(i) >> bit & 1 == 1).count();
                assert_eq!(count, expected as u64);
            }
        }
    }

    #[test]
    fn a_bit_is_one_where_it_was_set_more_often_than_not() {
        for number in (0..300).chain([1023, 1024, 2048, 4097, 20_000]) {
            // Bit 0 always, bit 1 never, bit 2 just half of the time, bit 3 once more, bit 4 once less.
            let set = |i: u64, of: u64| u64::from(2 * i < of);
            let (mut counts, mut ties) = (BitCounts::new(), BitCounts::new());
            for i in 0..number {
                let half = set(i, number) << 2
                    | set(i, number + 2) << 3
                    | set(i, number.saturating_sub(2)) << 4;
                counts.add(half | 1);
                ties.add(half | 1);
            }
            let (odd, some) = (number % 2, u64::from(number > 0));
            let expected = some | (odd << 2) | (some << 3);
            assert_eq!(counts.simhash(64, false) & 31, expected, "{number}");
            let tie = u64::from(number % 2 == 0);
            let tied = ties.simhash(5, true);
            assert_eq!(tied & 1, 1);
            assert_eq!(tied >> 2 & 1, odd | tie, "{number}");
            assert_eq!(tied >> 1 & 1, u64::from(number == 0));
        }
    }

    #[test]
    fn nothing_has_no_bits_unless_a_tie_gives_one() {
        assert_eq!(BitCounts::new().simhash(64, false), 0);
        assert_eq!(BitCounts::new().simhash(8, true), 0xFF);
    }

    #[test]
    fn counts_are_capped_and_ties_go_as_told() {
        let mut gate = Gate::new(2, 0);
        [1, 1, 1, 2, 2]
            .into_iter()
            .for_each(|feature| gate.add(feature));
        assert_eq!(gate.total, 5);
        assert_eq!(gate.finish(3, false), (2, 0b000));
        assert_eq!(gate.finish(3, true), (2, 0b011));
    }

    #[test]
    fn many_features_are_counted_as_few_are() {
        for cap in [1, 3, u64::MAX] {
            let different = MOST_IN_TABLE as u64 + 9;
            let features = (0..20 * different)
                .map(|i| (i % different % (i / different + 1)).wrapping_mul(u64::MAX / 9));
            let mut gate = Gate::new(cap, 0);
            let mut counts: HashMap<u64, u64> = HashMap::new();
            for feature in features.chain(0..different) {
                gate.add(feature);
                *counts.entry(feature).or_insert(0) += 1;
            }
            let mut bits = BitCounts::new();
            let each = |(&feature, &count): (&u64, &u64)| {
                std::iter::repeat_n(feature, count.min(cap) as usize)
            };
            bits.add_all(counts.iter().flat_map(each));
            assert_eq!(
                gate.finish(64, false),
                (counts.len(), bits.simhash(64, false))
            );
        }
    }
}
