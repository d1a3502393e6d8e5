//! The native kernel of `simhash.signature.profiles`: a text's signature in one pass, bit for bit that of the NumPy path.
//!
//! Beside it the blocks of `simhash.archive`: ascending keys packed and unpacked, byte for byte as NumPy does it.
//!
//! And the pages of an index in memory, in the places where they are met.
//!
//! `simhash/native.py` alone imports it. Tables of characters come from Python, so both paths have one truth.

mod bits;
mod blocks;
mod characters;
mod controls;
mod decoding;
mod digest;
mod features;
mod gate;
mod hashing;
mod html;
mod lookup;
mod main_text;
mod reading;
mod references;
mod seeking;
mod sketch;
mod stored;
mod tables;
mod words;

use characters::{Forms, Kinds};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};
use reading::{Reading, Recipe, Signature};
use sketch::Shape;

/// Gate, verifier with its band keys (most significant byte first), digest, number of features.
type Answer = (Option<u64>, Option<Vec<u8>>, Option<String>, u64);

/// Characters as Python has them.
#[pyclass(frozen)]
struct Characters {
    kinds: Kinds,
    forms: Forms,
}

#[pymethods]
impl Characters {
    /// `kinds`: one byte a code point, the kind or 128 for white space. Forms of the code points below `known`:
    /// themselves, except for `changed`; none for `contextual`, whose form depends on their neighbours.
    #[new]
    fn new(
        kinds: &[u8],
        known: u32,
        changed: Vec<(u32, String)>,
        contextual: Vec<u32>,
    ) -> PyResult<Self> {
        let kinds = Kinds::new(kinds)
            .ok_or_else(|| PyValueError::new_err("one kind a code point is needed"))?;
        Ok(Self {
            kinds,
            forms: Forms::new(known, &changed, &contextual),
        })
    }
}

/// One recipe, ready to read texts in any number of threads.
#[pyclass(frozen)]
struct Kernel {
    characters: Py<Characters>,
    recipe: Recipe,
}

#[pymethods]
impl Kernel {
    #[new]
    #[pyo3(signature = (characters, *, bits, zero_sum, cap, min_features, n, bins, bands, rows, fold))]
    #[allow(clippy::too_many_arguments)] // by keyword, from one call
    fn new(
        characters: Py<Characters>,
        bits: u32,
        zero_sum: bool,
        cap: Option<u64>,
        min_features: usize,
        n: usize,
        bins: usize,
        bands: usize,
        rows: usize,
        fold: usize,
    ) -> Self {
        let sketch = Shape {
            n,
            bins,
            bands,
            rows,
            fold,
        };
        let recipe = Recipe {
            bits,
            zero_sum,
            cap: cap.unwrap_or(u64::MAX),
            min_features,
            sketch,
        };
        Self { characters, recipe }
    }

    /// The signature of a text in parts that are not normalised yet, each read in pieces of at most `limit` characters.
    /// `normalise` is Python's: it is asked for a part with a character whose form depends on its neighbours, or with a
    /// lone surrogate. `expected`: about how many bytes the text has.
    fn read(
        &self,
        py: Python<'_>,
        parts: &Bound<'_, PyIterator>,
        normalise: &Bound<'_, PyAny>,
        expected: usize,
        limit: usize,
    ) -> PyResult<Answer> {
        let mut reading = Reading::new(&self.characters.get().kinds, self.recipe, expected);
        for part in parts {
            let part = part?.cast_into::<PyString>()?;
            if !self.folded(py, &part, limit, &mut reading) {
                let text = normalise.call1((part,))?.cast_into::<PyString>()?;
                let text = text.to_str()?;
                py.detach(|| reading.part(text, limit));
            }
        }
        Ok(answer(reading.finish()))
    }
}

impl Kernel {
    /// Fold a part and read it; false where only Python can normalise it.
    fn folded(
        &self,
        py: Python<'_>,
        part: &Bound<'_, PyString>,
        limit: usize,
        reading: &mut Reading,
    ) -> bool {
        let Ok(text) = part.to_str() else {
            return false;
        };
        let forms = &self.characters.get().forms;
        py.detach(|| match forms.folded(text) {
            Some(folded) => {
                reading.part(&folded, limit);
                true
            }
            None => false,
        })
    }
}

/// See `words`; benchmarks alone use it.
#[pyclass(frozen)]
struct Words(words::Words);

#[pymethods]
impl Words {
    #[new]
    #[allow(clippy::needless_pass_by_value)] // as PyO3 hands them over
    fn new(words: Vec<String>) -> Self {
        Self(words::Words::new(&words))
    }

    fn hashed(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.0.hashed())
    }

    fn simhash(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.0.simhash())
    }
}

fn answer(signature: Signature) -> Answer {
    let digest = signature.digest.map(|digest| format!("{digest:032x}"));
    (
        signature.gate,
        signature.verifier,
        digest,
        signature.features,
    )
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{Characters, Kernel, Words};
    #[pymodule_export]
    use crate::controls::{count_controls, is_utf8};
    #[pymodule_export]
    use crate::main_text::MainText;
    #[pymodule_export]
    use crate::stored::Stored;
    #[pymodule_export]
    use crate::tables::{BlockFile, BlockKernel, gap_counts, near_in, sorted_keys};

    /// Raised with every change of what Python has to pass or gets back.
    #[pymodule_export]
    const INTERFACE: u32 = 11;
}
