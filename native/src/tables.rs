//! What Python calls of the compressed tables: the width of the keys chooses the number of words.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use std::fs::File;
use std::path::PathBuf;

use crate::blocks::{self, BlockCode, Blocks, Broken, bytes_of, keys_in};
use crate::lookup::{Fault, Near, Places, Ranges, near_ranges};

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

/// A file of blocks, open to be read in any number of threads.
#[pyclass(frozen)]
pub struct BlockFile(File);

#[pymethods]
impl BlockFile {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        Ok(Self(File::open(path)?))
    }
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

    /// Of the same keys the bytes of those within `reach` bits of a query. `range`: the least and the greatest key
    /// that are wanted, and the query.
    #[allow(clippy::too_many_arguments)] // from one call
    fn near<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        sizes: &[u8],
        checks: &[u8],
        count: usize,
        range: &[u8],
        reach: u32,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (sizes, checks) = (as_numbers(sizes), as_numbers(checks));
        let stored = Blocks::new(data, &sizes, &checks);
        let words = self.0.words();
        let found = py.detach(|| Ok(of_words!(words, near(&self.0, stored, count, range, reach))));
        let keys = found?.map_err(PyErr::new::<PyValueError, Broken>)?;
        Ok(PyBytes::new(py, &keys))
    }

    /// Of many ranges the keys near their queries; see `lookup::Places` and `lookup::Ranges`. Bytes of the numbers of
    /// ranges (u32), of the keys, and of their distances (u32).
    #[allow(clippy::too_many_arguments)] // from one call
    fn near_ranges<'py>(
        &self,
        py: Python<'py>,
        file: &BlockFile,
        begins: &[u8],
        sizes: &[u8],
        checks: &[u8],
        count: usize,
        first: &[u8],
        last: &[u8],
        lows: &[u8],
        queries: &[u8],
        prefix: usize,
        reach: u32,
    ) -> PyResult<ThreeBytes<'py>> {
        let begins = keys_in::<1>(begins);
        let [sizes, checks, first, last] = [sizes, checks, first, last].map(as_numbers);
        let places = Places {
            begins: begins.as_flattened(),
            sizes: &sizes,
            checks: &checks,
            count,
        };
        let asked = Asked {
            places,
            first: &first,
            last: &last,
            lows,
            queries,
            prefix,
            reach,
        };
        let words = self.0.words();
        let found = py.detach(|| Ok(of_words!(words, near_many(&self.0, &file.0, &asked))));
        let [ranges, keys, distances] = found?.map_err(|fault| match fault {
            Fault::Broken(broken) => PyErr::new::<PyValueError, Broken>(broken),
            Fault::Unread(error) => error.into(),
        })?;
        let [ranges, keys, distances] =
            [ranges, keys, distances].map(|data| PyBytes::new(py, &data));
        Ok((ranges, keys, distances))
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

fn near<const W: usize>(
    code: &BlockCode,
    stored: Blocks,
    count: usize,
    range: &[u8],
    reach: u32,
) -> Result<Vec<u8>, Broken> {
    let range = keys_in::<W>(range).try_into();
    let range = range.map_err(|_| (0, "a range is three keys".to_string()))?;
    Ok(bytes_of(&code.near(stored, count, range, reach)?))
}

/// What `near_ranges` is asked, keys still as bytes.
struct Asked<'a> {
    places: Places<'a>,
    first: &'a [u32],
    last: &'a [u32],
    lows: &'a [u8],
    queries: &'a [u8],
    prefix: usize,
    reach: u32,
}

fn near_many<const W: usize>(
    code: &BlockCode,
    file: &File,
    asked: &Asked,
) -> Result<[Vec<u8>; 3], Fault> {
    let ranges = Ranges {
        first: asked.first,
        last: asked.last,
        lows: &keys_in::<W>(asked.lows),
        prefix: asked.prefix,
        queries: &keys_in::<W>(asked.queries),
        reach: asked.reach,
    };
    let found: Near<W> = near_ranges(code, file, &asked.places, &ranges)?;
    let [numbers, distances] = [&found.ranges, &found.distances].map(|numbers| as_bytes(numbers));
    Ok([numbers, bytes_of(&found.keys), distances])
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
