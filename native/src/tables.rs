//! What Python calls of the compressed tables: the width of the keys chooses the number of words.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use pyo3::pybacked::PyBackedBytes;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::blocks::{self, BlockCode, Blocks, Broken, bytes_of, keys_in};
use crate::lookup::{Question, Ranges, Table, looked_up, near_ranges};

/// Blocks from which on several threads read: below, starting them costs more than they save.
const THREADS_FROM: usize = 1024;

/// Call a function for keys of so many words: fingerprints have at most 256 bits, band keys 32 more.
macro_rules! of_words {
    ($words:expr, $call:ident ( $($argument:expr),* )) => {
        match $words {
            1 => $call::<1>($($argument),*),
            2 => $call::<2>($($argument),*),
            3 => $call::<3>($($argument),*),
            4 => $call::<4>($($argument),*),
            5 => $call::<5>($($argument),*),
            words => return Err(PyValueError::new_err(format!("no keys have {words} words"))),
        }
    };
}

type ThreeBytes<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
);

/// A table in a file, open to be asked in any number of threads; see `lookup::Table`.
#[pyclass(frozen)]
pub struct BlockFile {
    kernel: Py<BlockKernel>,
    table: Table,
}

#[pymethods]
impl BlockFile {
    /// `lasts`, `ends` and `checks` are what the file's index says of its blocks.
    #[new]
    fn new(
        path: PathBuf,
        kernel: Py<BlockKernel>,
        lasts: &[u8],
        ends: &[u8],
        checks: &[u8],
        start: u64,
        items: usize,
    ) -> PyResult<Self> {
        let [lasts, ends] = [lasts, ends].map(|bytes| keys_in::<1>(bytes).as_flattened().to_vec());
        let table = Table {
            file: File::open(path)?,
            lasts,
            ends,
            checks: as_numbers(checks),
            start,
            items,
        };
        Ok(Self { kernel, table })
    }
}

/// For each of several tables the keys that share their first `prefix` bits with one of its queries, but for at most
/// `radius` of them, and are within `reach` bits of it: bytes of the queries' numbers (u32), of the keys, and of the
/// distances (u32). The disk is asked for the blocks of all tables before the first one is read.
///
/// ValueError with the table's number, the block's and what is wrong with it.
#[pyfunction]
pub fn near_in<'py>(
    py: Python<'py>,
    asked: Vec<(Py<BlockFile>, PyBackedBytes, usize, usize)>,
    reach: u32,
    threads: usize,
) -> PyResult<Vec<ThreeBytes<'py>>> {
    let found = py.detach(|| {
        let mut asking_all = Vec::with_capacity(asked.len());
        for (file, queries, prefix, radius) in &asked {
            let file = file.get();
            let words = file.kernel.get().0.words();
            asking_all.push(of_words!(
                words,
                asking(file, queries, *prefix, *radius, reach)
            ));
        }
        Ok(answers(&asking_all, threads))
    })?;
    let told = found.into_iter().enumerate().map(|(number, answer)| {
        let [queries, keys, distances] =
            answer.map_err(|(block, reason)| PyValueError::new_err((number, block, reason)))?;
        let [queries, keys, distances] =
            [queries, keys, distances].map(|data| PyBytes::new(py, &data));
        Ok((queries, keys, distances))
    });
    told.collect()
}

/// One table's code, ready in any number of threads.
#[pyclass(frozen)]
pub struct BlockKernel(BlockCode);

#[pymethods]
impl BlockKernel {
    #[new]
    fn new(width: usize, block_keys: usize, lengths: Vec<u8>) -> PyResult<Self> {
        let code = BlockCode::new(width, block_keys, lengths);
        code.map(Self)
            .ok_or_else(|| PyValueError::new_err("no code has these lengths"))
    }

    /// Bytes of ascending keys to blocks: their bytes, sizes and checks. ValueError where keys descend.
    fn encode<'py>(&self, py: Python<'py>, keys: &[u8]) -> PyResult<ThreeBytes<'py>> {
        let made = py.detach(|| Ok(of_words!(self.0.words(), encode(&self.0, keys))));
        let (data, sizes, checks) = made?.map_err(PyValueError::new_err)?;
        let [sizes, checks] = [sizes, checks].map(|numbers| PyBytes::new(py, &as_bytes(&numbers)));
        Ok((PyBytes::new(py, &data), sizes, checks))
    }

    /// Blocks to the bytes of their `count` keys. ValueError with a block's number and what is wrong with it.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        sizes: &[u8],
        checks: &[u8],
        count: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (sizes, checks) = (as_numbers(sizes), as_numbers(checks));
        let stored = Blocks::new(data, &sizes, &checks);
        let found = py.detach(|| Ok(of_words!(self.0.words(), decode(&self.0, stored, count))));
        let keys = found?.map_err(PyErr::new::<PyValueError, Broken>)?;
        Ok(PyBytes::new(py, &keys))
    }
}

/// How often each first differing bit occurs among ascending keys; behind them the equals.
#[pyfunction]
pub fn gap_counts(py: Python<'_>, keys: &[u8], width: usize) -> PyResult<Vec<u64>> {
    let counts = py.detach(|| Ok(of_words!(width.div_ceil(64), counted(keys, width))));
    counts?.map_err(PyValueError::new_err)
}

/// The bytes of keys of so many words, ascending.
#[pyfunction]
pub fn sorted_keys<'py>(
    py: Python<'py>,
    keys: &[u8],
    words: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let ordered: PyResult<Vec<u8>> = py.detach(|| Ok(of_words!(words, sorted(keys))));
    Ok(PyBytes::new(py, &ordered?))
}

type Encoded = (Vec<u8>, Vec<u32>, Vec<u32>);

fn encode<const W: usize>(code: &BlockCode, keys: &[u8]) -> Result<Encoded, String> {
    code.encode(&keys_in::<W>(keys))
}

fn decode<const W: usize>(
    code: &BlockCode,
    stored: Blocks,
    count: usize,
) -> Result<Vec<u8>, Broken> {
    Ok(bytes_of(&code.decode::<W>(stored, count)?))
}

/// A table and what it is asked, whatever the width of its keys.
trait Asked: Send + Sync {
    /// How many blocks are to be read.
    fn blocks(&self) -> usize;
    fn answer(&self) -> Result<[Vec<u8>; 3], Broken>;
}

struct Asking<'a, const W: usize> {
    code: &'a BlockCode,
    table: &'a Table,
    ranges: Ranges<W>,
}

impl<const W: usize> Asked for Asking<'_, W> {
    fn blocks(&self) -> usize {
        self.ranges.blocks()
    }

    fn answer(&self) -> Result<[Vec<u8>; 3], Broken> {
        let found = near_ranges(self.code, self.table, &self.ranges)?;
        let [queries, distances] =
            [&found.queries, &found.distances].map(|numbers| as_bytes(numbers));
        Ok([queries, bytes_of(&found.keys), distances])
    }
}

fn asking<'a, const W: usize>(
    file: &'a BlockFile,
    queries: &[u8],
    prefix: usize,
    radius: usize,
    reach: u32,
) -> Box<dyn Asked + 'a> {
    let queries = keys_in::<W>(queries);
    let question = Question {
        queries,
        prefix,
        radius,
        reach,
    };
    let (code, table) = (&file.kernel.get().0, &file.table);
    Box::new(Asking {
        code,
        table,
        ranges: looked_up(table, question),
    })
}

/// All answers, by several threads where there is much to read. The largest question is begun first.
fn answers(asked: &[Box<dyn Asked + '_>], threads: usize) -> Vec<Result<[Vec<u8>; 3], Broken>> {
    let blocks: usize = asked.iter().map(|each| each.blocks()).sum();
    if threads < 2 || blocks < THREADS_FROM {
        return asked.iter().map(|each| each.answer()).collect();
    }
    let mut order: Vec<_> = (0..asked.len()).collect();
    order.sort_by_key(|&number| std::cmp::Reverse(asked[number].blocks()));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(&number) = order.get(next.fetch_add(1, Relaxed)) {
            done.push((number, asked[number].answer()));
        }
        done
    };
    let mut found: Vec<_> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(asked.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let mut found = work();
        found.extend(
            others
                .into_iter()
                .flat_map(|other| other.join().expect("no answer panics")),
        );
        found
    });
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, answer)| answer).collect()
}

fn counted<const W: usize>(keys: &[u8], width: usize) -> Result<Vec<u64>, String> {
    blocks::gap_counts(&keys_in::<W>(keys), width)
}

fn sorted<const W: usize>(keys: &[u8]) -> Vec<u8> {
    let mut keys = keys_in::<W>(keys);
    keys.sort_unstable();
    bytes_of(&keys)
}

fn as_bytes(numbers: &[u32]) -> Vec<u8> {
    let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes());
    bytes.collect()
}

fn as_numbers(bytes: &[u8]) -> Vec<u32> {
    let number = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
    bytes.chunks_exact(4).map(number).collect()
}
