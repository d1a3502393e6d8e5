//! What the decision knows of blocks (`simhash/reading/block_features.py`, where each feature is described).

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::html::Blocks;

const LEAST_GOOD_SIZE: i64 = 100;
const NEIGHBOURS: [i64; 4] = [-2, -1, 1, 2];
const WINDOWS: [usize; 3] = [2, 5, 10];
const LEVELS: usize = 4;
const CENTRES: [i64; 3] = [8, 12, 15];
const FAR: i64 = 1000;
const BITS: usize = 44;
/// Of both tables.
const FEATURES: usize = 180;
const H1: u64 = 1;
const HEADINGS: u64 = 3;
const PARAGRAPH: u64 = 4;
const LIST: u64 = 8;
const SECOND_NEIGHBOURS: [i64; 8] = [-4, -3, -2, -1, 1, 2, 3, 4];
const SECOND_WINDOWS: [usize; 3] = [3, 8, 20];
const MOST_SCORE: i64 = 255;
const NONE_SCORE: i64 = -300;

/// Rows of numbers, one for each feature, a number for each block.
pub struct Table {
    blocks: usize,
    cells: Vec<i32>,
}

impl Table {
    fn add(&mut self, row: impl Iterator<Item = i64>) {
        self.cells.extend(row.map(|number| number as i32));
        debug_assert_eq!(self.cells.len() % self.blocks, 0);
    }

    fn fill(&mut self, number: i64) {
        self.add(std::iter::repeat_n(number, self.blocks));
    }

    pub fn row(&self, feature: usize) -> &[i32] {
        &self.cells[feature * self.blocks..(feature + 1) * self.blocks]
    }
}

fn sums(values: impl Iterator<Item = i64>) -> Vec<i64> {
    let running = values.scan(0, |sum, value| {
        *sum += value;
        Some(*sum)
    });
    std::iter::once(0).chain(running).collect()
}

/// Columns and running sums that several features need.
pub struct Page<'a> {
    blocks: &'a Blocks,
    n: usize,
    share: Vec<i64>,
    punctuation: Vec<i64>,
    sizes: Vec<i64>,
    links: Vec<i64>,
    goods: Vec<i64>,
    points: Vec<i64>,
    good: i64,
    up: Vec<u32>,
    wrapped: Vec<u64>,
    around: Vec<u64>,
}

impl<'a> Page<'a> {
    pub fn new(blocks: &'a Blocks) -> Self {
        let n = blocks.texts.len();
        let punctuation: Vec<i64> =
            blocks.texts.iter().map(|text| points_of(&blocks.text[text.clone()])).collect();
        let good = |at: usize| {
            let (size, linked) = (blocks.sizes[at], blocks.linked[at]);
            let is_good = 3 * linked < size && size >= LEAST_GOOD_SIZE && punctuation[at] > 0;
            if is_good { size } else { 0 }
        };
        let goods = sums((0..n).map(good));
        let (up, wrapped, around) = elements(blocks);
        Self {
            blocks,
            n,
            share: (0..n).map(|at| 64 * blocks.linked[at] / blocks.sizes[at]).collect(),
            sizes: sums(blocks.sizes.iter().copied()),
            links: sums(blocks.linked.iter().copied()),
            points: sums(punctuation.iter().copied()),
            punctuation,
            good: goods[n].max(1),
            goods,
            up,
            wrapped,
            around,
        }
    }

    fn owner(&self, at: usize) -> usize {
        self.blocks.owners[at] as usize
    }

    fn own(&self, at: usize) -> u64 {
        self.blocks.masks[self.owner(at)]
    }

    fn start(&self, element: usize) -> usize {
        self.blocks.starts[element] as usize
    }

    fn end(&self, element: usize) -> usize {
        self.blocks.ends[element] as usize
    }

    fn up(&self, element: usize) -> usize {
        self.up[element] as usize
    }

    /// The table that decides first. `endings`: what a block's last character says.
    pub fn table(&self, endings: &HashMap<char, i32, RandomState>) -> Table {
        let mut table = Table { blocks: self.n, cells: Vec::with_capacity(self.n * FEATURES) };
        self.of_block(&mut table, endings);
        self.of_place(&mut table);
        self.of_marks(&mut table);
        self.of_neighbours(&mut table);
        self.of_windows(&mut table);
        self.of_levels(&mut table);
        self.of_centres(&mut table);
        self.of_bits(&mut table);
        table
    }

    fn of_block(&self, table: &mut Table, endings: &HashMap<char, i32, RandomState>) {
        let blocks = self.blocks;
        table.add(blocks.sizes.iter().copied());
        table.add(self.share.iter().copied());
        table.add(blocks.links.iter().map(|&links| i64::from(links)));
        table.add(self.punctuation.iter().copied());
        table.add((0..self.n).map(|at| 1000 * self.punctuation[at] / blocks.sizes[at]));
        let last = |text: &std::ops::Range<usize>| {
            let last = blocks.text[text.clone()].chars().next_back();
            i64::from(last.and_then(|c| endings.get(&c)).copied().unwrap_or(0))
        };
        table.add(blocks.texts.iter().map(last));
        table.add(blocks.broken.iter().map(|&broken| i64::from(broken)));
        let behind = blocks.broken[1..].iter().chain(&[false]);
        table.add(behind.map(|&broken| i64::from(broken)));
    }

    fn of_place(&self, table: &mut Table) {
        let (sizes, goods, n) = (&self.sizes, &self.goods, self.n);
        table.add((0..n).map(|at| i64::from(self.blocks.depths[self.owner(at)])));
        table.add((0..n).map(|at| (64 * at / n) as i64));
        table.add((0..n).map(|at| 64 * sizes[at] / sizes[n]));
        table.add((0..n).map(|at| goods[at]));
        table.add((0..n).map(|at| goods[n] - goods[at + 1]));
        table.fill(n as i64);
        table.fill(self.good);
        table.fill(64 * self.good / sizes[n]);
    }

    fn of_marks(&self, table: &mut Table) {
        let marks = |is: &dyn Fn(usize) -> bool| (0..self.n).filter(|&at| is(at)).collect::<Vec<_>>();
        let h1 = marks(&|at| self.wrapped[self.owner(at)] & H1 != 0);
        let titles = marks(&|at| self.is_title(at));
        let headings = marks(&|at| self.own(at) & HEADINGS != 0);
        self.from(table, h1.first());
        self.since(table, &h1);
        self.since(table, &titles);
        self.from(table, titles.last());
        self.since(table, &headings);
    }

    fn is_title(&self, at: usize) -> bool {
        let text = &self.blocks.text[self.blocks.texts[at].clone()];
        (8..=1200).contains(&text.len())
            && (8..=300).contains(&text.chars().count())
            && memchr::memmem::find(self.blocks.title.as_bytes(), text.as_bytes()).is_some()
    }

    fn from(&self, table: &mut Table, mark: Option<&usize>) {
        match mark {
            None => table.fill(FAR),
            Some(&mark) => {
                table.add((0..self.n).map(|at| (at as i64 - mark as i64).clamp(-100, FAR)));
            }
        }
    }

    fn since(&self, table: &mut Table, marks: &[usize]) {
        let mut ahead = marks.iter().peekable();
        let mut last = None;
        table.add((0..self.n).map(|at| {
            if let Some(&mark) = ahead.next_if(|&&mark| mark == at) {
                last = Some(mark);
            }
            last.map_or(FAR, |mark| ((at - mark) as i64).min(FAR))
        }));
    }

    fn kind(&self, at: usize) -> i64 {
        match self.own(at) {
            own if own & H1 != 0 => 1,
            own if own & HEADINGS != 0 => 2,
            own if own & PARAGRAPH != 0 => 3,
            own if own & LIST != 0 => 4,
            _ => 0,
        }
    }

    fn kin(&self, at: usize, other: usize) -> i64 {
        let (one, two) = (self.owner(at), self.owner(other));
        2 * i64::from(self.up[one] == self.up[two]) + i64::from(one == two)
    }

    fn of_neighbours(&self, table: &mut Table) {
        for by in NEIGHBOURS {
            let mut column = |of: &dyn Fn(usize, usize) -> i64| {
                table.add((0..self.n).map(|at| {
                    let other = at.checked_add_signed(by as isize).filter(|&other| other < self.n);
                    other.map_or(-1, |other| of(at, other))
                }));
            };
            column(&|_, other| self.blocks.sizes[other]);
            column(&|_, other| self.share[other]);
            column(&|_, other| self.punctuation[other]);
            column(&|_, other| self.kind(other));
            column(&|at, other| self.kin(at, other));
        }
    }

    fn of_windows(&self, table: &mut Table) {
        let (n, sizes, links, goods) = (self.n, &self.sizes, &self.links, &self.goods);
        for by in WINDOWS {
            let window = move |at: usize| (at.saturating_sub(by), (at + by + 1).min(n));
            let held = |sums: &[i64], at| window_sum(sums, window(at));
            table.add((0..n).map(|at| held(goods, at)));
            table.add((0..n).map(|at| 64 * held(links, at) / held(sizes, at)));
            table.add((0..n).map(|at| {
                let (low, high) = window(at);
                held(sizes, at) / (high - low) as i64
            }));
        }
        table.add((0..n).map(|at| goods[at] - goods[at.saturating_sub(2)]));
        table.add((0..n).map(|at| goods[(at + 3).min(n)] - goods[at + 1]));
    }

    fn of_levels(&self, table: &mut Table) {
        let alike = self.alike();
        let mut elements: Vec<usize> = (0..self.n).map(|at| self.owner(at)).collect();
        for _ in 0..LEVELS {
            let held = |sums: &[i64], at: usize| {
                let element = elements[at];
                window_sum(sums, (self.start(element), self.end(element)))
            };
            let count = |at: usize| (self.end(elements[at]) - self.start(elements[at])) as i64;
            let all = || 0..self.n;
            table.add(all().map(|at| 64 * held(&self.goods, at) / self.good));
            table.add(all().map(|at| held(&self.goods, at)));
            table.add(all().map(|at| held(&self.sizes, at)));
            table.add(all().map(|at| 64 * held(&self.links, at) / held(&self.sizes, at)));
            table.add(all().map(count));
            table.add(all().map(|at| held(&self.sizes, at) / count(at)));
            table.add(all().map(|at| 1000 * held(&self.points, at) / held(&self.sizes, at)));
            table.add(all().map(|at| alike[elements[at]]));
            table.add(all().map(|at| 16 * (at - self.start(elements[at])) as i64 / count(at)));
            elements.iter_mut().for_each(|element| *element = self.up(*element));
        }
    }

    /// Of each element how many of the page have its name and words.
    fn alike(&self) -> Vec<i64> {
        let mut counts = vec![0; self.blocks.keys.len()];
        self.blocks.keys.iter().for_each(|&key| counts[key as usize] += 1);
        self.blocks.keys.iter().map(|&key| counts[key as usize]).collect()
    }

    fn of_centres(&self, table: &mut Table) {
        let all = self.goods[self.n];
        for part in CENTRES {
            let held = |element: &usize| {
                window_sum(&self.goods, (self.start(*element), self.end(*element)))
            };
            let holds = |element: &usize| 16 * held(element) >= part * all;
            let innermost = (0..self.up.len()).rev().find(|element| all > 0 && holds(element));
            let centre = innermost.unwrap_or(0);
            let (start, end) = (self.start(centre), self.end(centre));
            let count = (end - start) as i64;
            let depth = |at: usize| i64::from(self.blocks.depths[self.owner(at)]);
            let top = i64::from(self.blocks.depths[centre]);
            let inside = |at: usize| at >= start && at < end;
            table.add((0..self.n).map(|at| {
                if inside(at) { 16 * (at - start) as i64 / count } else { -1 }
            }));
            table.add((0..self.n).map(|at| match at {
                at if at < start => (at as i64 - start as i64).max(-100),
                at if at >= end => ((at - end + 1) as i64).min(100),
                _ => 0,
            }));
            table.add((0..self.n).map(|at| if inside(at) { depth(at) - top } else { -1 }));
            table.fill(count);
            let size = window_sum(&self.sizes, (start, end));
            table.fill(64 * window_sum(&self.links, (start, end)) / size);
        }
    }

    fn of_bits(&self, table: &mut Table) {
        let masks = &self.blocks.masks;
        let of_block = |at: usize| {
            let owner = self.owner(at);
            let inner = self.wrapped[owner];
            let near = inner | masks[self.up(owner)];
            let nearer = near | masks[self.up(self.up(owner))];
            [self.around[owner], nearer, near, inner]
        };
        let nearness: Vec<[u64; 4]> = (0..self.n).map(of_block).collect();
        let present = nearness.iter().flatten().fold(0, |all, mask| all | mask);
        for bit in 0..BITS {
            if present >> bit & 1 == 0 {
                table.fill(0);
                continue;
            }
            let count = |of: &[u64; 4]| of.iter().map(|mask| (mask >> bit & 1) as i64).sum();
            table.add(nearness.iter().map(count));
        }
    }

    /// Scores, of which short blocks of one element have one.
    pub fn shared(&self, mut scores: Vec<i64>) -> Vec<i64> {
        let sizes = &self.blocks.sizes;
        let short = |at: &usize| sizes[*at] < LEAST_GOOD_SIZE;
        let element = |at: usize| {
            let owner = self.owner(at);
            if self.end(owner) - self.start(owner) == 1 { self.up(owner) } else { owner }
        };
        let mut held = vec![(0, 0); self.blocks.starts.len()];
        for at in (0..self.n).filter(short) {
            let (size, weighted) = &mut held[element(at)];
            *size += sizes[at];
            *weighted += sizes[at] * scores[at].clamp(-MOST_SCORE, MOST_SCORE);
        }
        for at in (0..self.n).filter(short) {
            let (size, weighted) = held[element(at)];
            scores[at] = weighted.div_euclid(size.max(1));
        }
        scores
    }

    /// The first table, and behind it what a first decision says of the neighbours and of the elements around.
    pub fn second(&self, mut table: Table, scores: &[i64]) -> Table {
        let (n, sizes) = (self.n, &self.sizes);
        let scores: Vec<i64> =
            scores.iter().map(|score| (*score).clamp(-MOST_SCORE, MOST_SCORE)).collect();
        let own = &self.blocks.sizes;
        let weighted = sums((0..n).map(|at| own[at] * scores[at]));
        let taken = sums((0..n).map(|at| if scores[at] > 0 { own[at] } else { 0 }));
        let all = taken[n].max(1);
        table.add(scores.iter().copied());
        for by in SECOND_NEIGHBOURS {
            table.add((0..n).map(|at| {
                let other = at.checked_add_signed(by as isize);
                other.and_then(|other| scores.get(other)).copied().unwrap_or(NONE_SCORE)
            }));
        }
        for by in SECOND_WINDOWS {
            let window = move |at: usize| (at.saturating_sub(by), (at + by + 1).min(n));
            let held = |sums: &[i64], at| window_sum(sums, window(at));
            table.add((0..n).map(|at| held(&weighted, at).div_euclid(held(sizes, at))));
            table.add((0..n).map(|at| 64 * held(&taken, at) / held(sizes, at)));
        }
        table.add((0..n).map(|at| 64 * taken[at] / all));
        table.add((0..n).map(|at| 64 * (taken[n] - taken[at + 1]) / all));
        table.fill(taken[n]);
        table.fill(64 * taken[n] / sizes[n]);
        add_gaps(&mut table, &scores);
        let mut elements: Vec<usize> = (0..n).map(|at| self.owner(at)).collect();
        for _ in 0..LEVELS {
            let held = |sums: &[i64], at: usize| {
                window_sum(sums, (self.start(elements[at]), self.end(elements[at])))
            };
            table.add((0..n).map(|at| held(&weighted, at).div_euclid(held(sizes, at))));
            table.add((0..n).map(|at| 64 * held(&taken, at) / held(sizes, at)));
            table.add((0..n).map(|at| 64 * held(&taken, at) / all));
            elements.iter_mut().for_each(|element| *element = self.up(*element));
        }
        table
    }
}

fn window_sum(sums: &[i64], (low, high): (usize, usize)) -> i64 {
    sums[high] - sums[low]
}

/// How many marks of punctuation a text has, by their bytes in UTF-8: `.,;:!?、。，！？：；،؟؛।`.
fn points_of(text: &str) -> i64 {
    let bytes = text.as_bytes();
    let count = |from: usize| {
        let some = &bytes[from..bytes.len().min(from + AT_ONCE)];
        if some.is_ascii() {
            let is_point = |b: u8| (b == b'.') | (b == b',') | (b == b';') | (b == b':') | (b == b'!') | (b == b'?');
            return some.iter().map(|&b| u8::from(is_point(b))).sum::<u8>() as usize;
        }
        (from..from + some.len()).filter(|&at| begins_with_a_point(&bytes[at..])).count()
    };
    (0..bytes.len()).step_by(AT_ONCE).map(count).sum::<usize>() as i64
}

/// Bytes of ASCII are counted so many together, which the compiler makes vectors of.
const AT_ONCE: usize = 64;

fn begins_with_a_point(bytes: &[u8]) -> bool {
    match bytes {
        [b'.' | b',' | b';' | b':' | b'!' | b'?', ..] => true,
        [0xE3, 0x80, last, ..] => matches!(last, 0x81 | 0x82),
        [0xEF, 0xBC, last, ..] => matches!(last, 0x8C | 0x81 | 0x9F | 0x9A | 0x9B),
        [0xD8, last, ..] => matches!(last, 0x8C | 0x9F | 0x9B),
        [0xE0, 0xA5, 0xA4, ..] => true,
        _ => false,
    }
}

/// How many blocks ago the last one that is taken stands, and how far ahead the next.
fn add_gaps(table: &mut Table, scores: &[i64]) {
    let gaps = |order: &mut dyn Iterator<Item = usize>| {
        let mut gaps = vec![100; scores.len()];
        let mut gap = 100;
        for at in order {
            gaps[at] = gap;
            gap = if scores[at] > 0 { 1 } else { (gap + 1).min(100) };
        }
        gaps
    };
    let n = scores.len();
    table.add(gaps(&mut (0..n)).into_iter());
    table.add(gaps(&mut (0..n).rev()).into_iter());
}

/// Of each element: the next level, the bits of those with the same blocks as it, and of all around it.
fn elements(blocks: &Blocks) -> (Vec<u32>, Vec<u64>, Vec<u64>) {
    let (mut wrapped, mut around) = (blocks.masks.clone(), blocks.masks.clone());
    let mut up = vec![0];
    for element in 1..blocks.parents.len() {
        let parent = blocks.parents[element];
        let above = parent as usize;
        let range = |element: usize| (blocks.starts[element], blocks.ends[element]);
        if range(above) == range(element) {
            up.push(up[above]);
            wrapped[element] |= wrapped[above];
        } else {
            up.push(parent);
        }
        around[element] |= around[above];
    }
    (up, wrapped, around)
}

#[cfg(test)]
mod tests {
    use super::points_of;

    #[test]
    fn a_mark_of_punctuation_is_known_by_its_bytes() {
        const PUNCTUATION: &str = ".,;:!?、。，！？：；،؟؛।";
        assert_eq!(points_of(PUNCTUATION), PUNCTUATION.chars().count() as i64);
        let others: String = (1..0x1_0000).filter_map(char::from_u32).filter(|&c| !PUNCTUATION.contains(c)).collect();
        assert_eq!(points_of(&others), 0);
    }
}
