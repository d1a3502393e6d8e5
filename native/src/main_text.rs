//! HTML to main text: blocks, features, the decision (`simhash/reading/main_text.py`).

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::features::{Page, Table};
use crate::html::{Blocks, Name, Reader, Role, Vocabulary};
use crate::references::References;

/// Oblivious trees: each asks the same questions of all blocks, and its leaf is the number that the answers spell. They
/// lie in pairs: two leaves are added to a block's sum at a time.
struct Look {
    bias: i64,
    pairs: Vec<[Tree; 2]>,
}

/// A question is whether a feature is greater than a number.
struct Tree {
    questions: [(usize, i32); DEPTH],
    leaves: [i32; LEAVES],
}

const DEPTH: usize = 5;
const LEAVES: usize = 1 << DEPTH;
/// What a tree of fewer questions asks besides: it has no leaves but its first ones.
const NEVER: (usize, i32) = (0, i32::MAX);

impl Look {
    fn scores(&self, table: &Table, blocks: usize) -> Vec<i64> {
        let mut sums = vec![0; blocks];
        let mut spelt = [vec![0; blocks], vec![0; blocks]];
        for trees in &self.pairs {
            for (tree, leaf) in trees.iter().zip(&mut spelt) {
                answer(table, &tree.questions, leaf);
            }
            let leaves = trees.each_ref().map(|tree| &tree.leaves);
            for ((sum, &one), &two) in sums.iter_mut().zip(&spelt[0]).zip(&spelt[1]) {
                // The remainders are there so that no bound is checked.
                *sum += leaves[0][one as usize % LEAVES] + leaves[1][two as usize % LEAVES];
            }
        }
        sums.iter().map(|&sum: &i32| (self.bias + i64::from(sum)) >> 4).collect()
    }
}

/// Of each block the leaf that its answers spell, the first question's answer lowest.
fn answer(table: &Table, questions: &[(usize, i32); DEPTH], leaf: &mut [u32]) {
    let row = |(feature, most): (usize, i32)| (&table.row(feature)[..leaf.len()], most);
    let [(a, p), (b, q), (c, r), (d, s), (e, t)] = questions.map(row);
    for at in 0..leaf.len() {
        leaf[at] = u32::from(a[at] > p)
            | u32::from(b[at] > q) << 1
            | u32::from(c[at] > r) << 2
            | u32::from(d[at] > s) << 3
            | u32::from(e[at] > t) << 4;
    }
}

/// One version of the extractor, ready to read pages in any number of threads.
#[pyclass(frozen)]
pub struct MainText {
    vocabulary: Vocabulary,
    endings: HashMap<char, i32, RandomState>,
    looks: [Look; 2],
    sure: i64,
    possible: i64,
    unsure: i64,
    likely: i64,
    least: usize,
    repeated: usize,
}

/// Name, role, number, mask, ended as, ends, stops at a table, stops at a cell, skipped.
type Told = (String, String, u32, u64, u32, u32, bool, bool, bool);
/// Questions, each a feature and a number; leaves.
type ToldTree = (Vec<(usize, i32)>, Vec<i32>);
type ToldLook = (i64, Vec<ToldTree>);
/// Text, title, language, canonical URL, robots.
type Found = (String, String, String, String, String);

fn look((bias, told): ToldLook) -> PyResult<Look> {
    let tree = |(mut questions, mut leaves): ToldTree| {
        questions.resize(questions.len().max(DEPTH), NEVER);
        leaves.resize(leaves.len().max(LEAVES), 0);
        let found = questions.try_into().ok().zip(leaves.try_into().ok());
        let (questions, leaves) = found.ok_or_else(|| PyValueError::new_err("a tree asks five questions at most"))?;
        PyResult::Ok(Tree { questions, leaves })
    };
    let mut told = told.into_iter();
    let mut pairs = Vec::with_capacity(told.len().div_ceil(2));
    while let Some(one) = told.next() {
        pairs.push([tree(one)?, tree(told.next().unwrap_or_default())?]);
    }
    Ok(Look { bias, pairs })
}

#[pymethods]
impl MainText {
    #[new]
    #[pyo3(signature = (*, names, words, references, longest_bare, windows_1252, endings, looks, sure, possible, unsure, likely, least, repeated))]
    #[allow(clippy::too_many_arguments)] // by keyword, from one call
    fn new(
        names: Vec<Told>,
        words: Vec<(String, u64)>,
        references: Vec<(String, String)>,
        longest_bare: usize,
        windows_1252: &str,
        endings: Vec<(char, i32)>,
        looks: [ToldLook; 2],
        sure: i64,
        possible: i64,
        unsure: i64,
        likely: i64,
        least: usize,
        repeated: usize,
    ) -> PyResult<Self> {
        let [first, second] = looks;
        let table = names.iter().find(|told| told.0 == "table").map_or(0, |told| told.2);
        let names: Vec<_> = names.into_iter().map(role).collect();
        let references = References::new(references, longest_bare, windows_1252);
        Ok(Self {
            vocabulary: Vocabulary::new(&names, &words, references, table),
            endings: endings.into_iter().collect(),
            looks: [look(first)?, look(second)?],
            sure,
            possible,
            unsure,
            likely,
            least,
            repeated,
        })
    }

    /// What is found in a page in UTF-8 without NUL.
    fn read(&self, py: Python<'_>, html: &[u8]) -> PyResult<Found> {
        let html = utf8(html)?;
        Ok(py.detach(|| self.found(html)))
    }

    /// What a page says of itself alone: language, canonical URL, robots.
    fn metadata(&self, py: Python<'_>, html: &[u8]) -> PyResult<(String, String, String)> {
        let html = utf8(html)?;
        let blocks = py.detach(|| Reader::new(&self.vocabulary, html).metadata_alone());
        Ok((blocks.language, blocks.canonical, blocks.robots))
    }

    /// Its blocks' scores: for tests, which look closer at where two paths part.
    fn scores(&self, html: &str) -> Vec<i64> {
        self.scores_of(&Reader::new(&self.vocabulary, html).read())
    }
}

impl MainText {
    fn found(&self, html: &str) -> Found {
        let blocks = Reader::new(&self.vocabulary, html).read();
        let text = self.text(&blocks);
        (text, blocks.title, blocks.language, blocks.canonical, blocks.robots)
    }

    fn text(&self, blocks: &Blocks) -> String {
        let all = blocks.text.trim_end_matches('\n');
        if blocks.texts.is_empty() || blocks.is_large() {
            return all.to_owned();
        }
        let scores = self.scores_of(blocks);
        let bar = self.bar(&blocks.sizes, &scores);
        let taken = blocks.texts.iter().zip(scores).filter(|(_, score)| *score > bar);
        let texts = taken.map(|(text, _)| &blocks.text[text.clone()]);
        let mut seen: HashSet<&str, RandomState> = HashSet::default();
        let texts: Vec<&str> = texts.filter(|&text| !self.is_long(text) || seen.insert(text)).collect();
        let main = texts.join("\n");
        if main.chars().count() < self.least { all.to_owned() } else { main }
    }

    /// Whether a text is one that a page has once.
    fn is_long(&self, text: &str) -> bool {
        text.len() >= self.repeated && text.chars().count() >= self.repeated
    }

    /// The score above which a block of this page is content.
    fn bar(&self, sizes: &[i64], scores: &[i64]) -> i64 {
        let above = |bar: i64| sizes.iter().zip(scores).filter(|(_, s)| **s > bar).map(|(size, _)| size).sum::<i64>();
        let is_unsure = 64 * above(self.sure) < self.unsure * above(self.possible);
        let others = sizes.iter().zip(scores).filter(|(_, s)| **s > self.possible && **s <= self.sure);
        let are_likely = others.map(|(size, score)| size * (score - self.likely)).sum::<i64>() >= 0;
        if is_unsure && are_likely { self.possible } else { self.sure }
    }

    fn scores_of(&self, blocks: &Blocks) -> Vec<i64> {
        if blocks.texts.is_empty() || blocks.is_large() {
            return Vec::new();
        }
        let page = Page::new(blocks);
        let count = blocks.texts.len();
        let first = page.table(&self.endings);
        let scores = self.looks[0].scores(&first, count);
        let second = page.second(first, &scores);
        page.shared(self.looks[1].scores(&second, count))
    }
}

fn utf8(html: &[u8]) -> PyResult<&str> {
    std::str::from_utf8(html).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn role(told: Told) -> (String, Role) {
    let (name, role, number, mask, ended_as, ends, stops_at_table, stops_at_cell, skipped) = told;
    let role = match role.as_str() {
        "line" => Role::Line,
        "rule" => Role::Rule,
        "metadata" => Role::Metadata,
        "page" => Role::Page,
        "raw" => Role::Raw,
        "script" => Role::Script,
        "title" => Role::Title,
        "shown" => Role::Shown,
        _ => Role::Element(Name {
            number,
            mask,
            ended_as,
            ends,
            stops_at_table,
            stops_at_cell,
            skipped,
        }),
    };
    (name, role)
}
