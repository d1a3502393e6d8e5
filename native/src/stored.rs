//! The stored pages of an index in memory, `simhash.index.memory`, for fingerprints of up to 64 bits: their records, and
//! the places in which they are met.
//!
//! A place (a prefix of a table, the leading bits of a band key) is found by the oldest page in it, whose own record
//! says which place it is, so no key is stored: 8 bytes a place.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Bytes of a band key.
const BAND: usize = 4;
const RECORDS_PER_CHUNK: usize = 4096;

/// A run of bits that keeps its order: `(fingerprint >> take) & mask`, put at `<< put`.
type Move = (u32, u64, u32);

/// A permutation of fingerprints of so many bits, and how many of them lead.
struct Table {
    moves: Vec<Move>,
    bits: u32,
    prefix: u32,
    radius: u32,
    /// With how many of each place one bit away a page is compared, where more than the limit stand one bit away.
    neighbours: usize,
}

impl Table {
    /// The prefix of a fingerprint.
    fn place(&self, fingerprint: u64) -> u64 {
        let moved = self
            .moves
            .iter()
            .map(|&(take, mask, put)| (fingerprint >> take & mask) << put);
        moved.sum::<u64>() >> (self.bits - self.prefix)
    }
}

/// Where a record has what is compared.
struct Fields {
    fingerprint: usize,
    verifier: usize,
    /// Behind the verifier and its band keys.
    end: usize,
    bands: usize,
}

impl Fields {
    fn fingerprint(&self, record: &[u8]) -> u64 {
        let bytes = &record[self.fingerprint..self.verifier];
        bytes
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn verifier<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        &record[self.verifier..self.end]
    }

    /// A band key; 0 where there is none.
    fn key(&self, verifier: &[u8], band: usize) -> u32 {
        let at = verifier.len() - BAND * (self.bands - band);
        u32::from_be_bytes(verifier[at..at + BAND].try_into().expect("four bytes"))
    }
}

/// Neighbouring records, one behind the other.
#[derive(Default)]
struct Chunk {
    data: Vec<u8>,
    ends: Vec<usize>,
}

/// All records, by number.
struct Records {
    chunks: VecDeque<Chunk>,
    /// The number of the first record of the first chunk, and that of the next one to come.
    first: u32,
    next: u32,
}

impl Records {
    fn push(&mut self, record: &[u8]) -> u32 {
        let is_full = |chunk: &Chunk| chunk.ends.len() == RECORDS_PER_CHUNK;
        if self.chunks.back().is_none_or(is_full) {
            if let Some(full) = self.chunks.back_mut() {
                full.data.shrink_to_fit();
            }
            self.chunks.push_back(Chunk::default());
        }
        let chunk = self.chunks.back_mut().expect("one was added");
        chunk.data.extend_from_slice(record);
        chunk.ends.push(chunk.data.len());
        self.next += 1;
        self.next - 1
    }

    fn get(&self, number: u32) -> &[u8] {
        let at = (number - self.first) as usize;
        let (chunk, at) = (&self.chunks[at / RECORDS_PER_CHUNK], at % RECORDS_PER_CHUNK);
        let begin = at.checked_sub(1).map_or(0, |before| chunk.ends[before]);
        &chunk.data[begin..chunk.ends[at]]
    }

    /// Give back the memory of chunks whose records are all before a number.
    fn drop_before(&mut self, number: u32) {
        while number - self.first >= RECORDS_PER_CHUNK as u32 {
            self.chunks.pop_front();
            self.first += RECORDS_PER_CHUNK as u32;
        }
    }
}

/// The numbers in a place, ascending: the first, and the row that has the others; 0: there are none.
struct Place {
    first: u32,
    row: u32,
}

/// All places of a table or band. Most have one page: what others stand there is kept beside them.
struct Places {
    places: HashTable<Place>,
    rows: Vec<Vec<u32>>,
    free: Vec<u32>,
    hasher: FixedState,
}

impl Places {
    fn new() -> Self {
        Self {
            places: HashTable::new(),
            rows: vec![Vec::new()], // row 0 stays empty
            free: Vec::new(),
            hasher: FixedState::with_seed(0),
        }
    }

    /// The numbers that stand in a place, the first one and those behind it.
    fn standing(&self, own: u64, place_of: impl Fn(u32) -> u64) -> Option<(u32, &[u32])> {
        let hash = self.hasher.hash_one(own);
        let place = self
            .places
            .find(hash, |place| place_of(place.first) == own)?;
        Some((place.first, &self.rows[place.row as usize]))
    }

    /// Put a number behind the others in its place; whether there is no room.
    fn stand(&mut self, number: u32, limit: usize, place_of: impl Fn(u32) -> u64) -> bool {
        let own = place_of(number);
        let (hasher, hash) = (&self.hasher, self.hasher.hash_one(own));
        let found = self
            .places
            .find_mut(hash, |place| place_of(place.first) == own);
        let Some(place) = found else {
            let place = Place {
                first: number,
                row: 0,
            };
            self.places
                .insert_unique(hash, place, |place| hasher.hash_one(place_of(place.first)));
            return false;
        };
        if self.rows[place.row as usize].len() + 1 >= limit {
            return true;
        }
        if place.row == 0 {
            place.row = self.free.pop().unwrap_or(self.rows.len() as u32);
            if place.row as usize == self.rows.len() {
                self.rows.push(Vec::new());
            }
        }
        self.rows[place.row as usize].push(number);
        false
    }

    /// Take a number out of its place, if it stands there.
    fn leave(&mut self, number: u32, place_of: impl Fn(u32) -> u64) {
        let own = place_of(number);
        let hash = self.hasher.hash_one(own);
        let found = self
            .places
            .find_entry(hash, |place| place_of(place.first) == own);
        let Ok(mut entry) = found else { return };
        let place = entry.get_mut();
        let row = &mut self.rows[place.row as usize];
        if place.first != number {
            row.retain(|&other| other != number);
        } else if row.is_empty() {
            entry.remove();
            return;
        } else {
            place.first = row.remove(0);
        }
        if row.is_empty() && place.row != 0 {
            *row = Vec::new();
            self.free.push(place.row);
            place.row = 0;
        }
    }
}

#[pyclass]
pub struct Stored {
    records: Records,
    fields: Fields,
    tables: Vec<Table>,
    of_tables: Vec<Places>,
    of_bands: Vec<Places>,
    /// Bits of a band key behind those that choose its place.
    band_rest: u32,
    limit: usize,
    reach: u32,
    verifier_reach: u32,
}

impl Stored {
    fn fingerprint(&self, number: u32) -> u64 {
        self.fields.fingerprint(self.records.get(number))
    }

    fn verifier(&self, number: u32) -> &[u8] {
        self.fields.verifier(self.records.get(number))
    }

    fn key(&self, number: u32, band: usize) -> u32 {
        self.fields.key(self.verifier(number), band)
    }

    fn in_table(&self, table: usize, prefix: u64) -> Option<(u32, &[u32])> {
        let place_of = |number| self.tables[table].place(self.fingerprint(number));
        self.of_tables[table].standing(prefix, place_of)
    }

    /// The numbers that a fingerprint meets in the tables.
    fn met_in_tables(&self, fingerprint: u64) -> Vec<u32> {
        let mut met = Vec::new();
        for (number, table) in self.tables.iter().enumerate() {
            let own = table.place(fingerprint);
            if let Some(place) = self.in_table(number, own) {
                oldest(place, self.limit, &mut met);
            }
            let flips = if table.radius > 0 { table.prefix } else { 0 };
            let around: Vec<_> = (0..flips)
                .filter_map(|bit| self.in_table(number, own ^ 1 << bit))
                .collect();
            let together: usize = around.iter().map(|(_, others)| 1 + others.len()).sum();
            let most = if together > self.limit {
                table.neighbours
            } else {
                self.limit
            };
            for place in around {
                oldest(place, most, &mut met);
            }
        }
        met
    }

    /// The numbers that a verifier meets in the bands.
    fn met_in_bands(&self, verifier: &[u8]) -> Vec<u32> {
        let mut met = Vec::new();
        for (band, places) in self.of_bands.iter().enumerate() {
            let key = self.fields.key(verifier, band);
            let place_of = |number| u64::from(self.key(number, band) >> self.band_rest);
            if key == 0 {
                continue;
            }
            if let Some(place) = places.standing(u64::from(key >> self.band_rest), place_of) {
                oldest(place, self.limit, &mut met);
            }
        }
        met
    }

    fn shares_band(&self, number: u32, verifier: &[u8]) -> bool {
        (0..self.of_bands.len()).any(|band| {
            let key = self.fields.key(verifier, band);
            key != 0 && key == self.key(number, band)
        })
    }

    fn verified(&self, number: u32, verifier: &[u8]) -> bool {
        let compared = verifier.len() - BAND * self.fields.bands;
        let stored = &self.verifier(number)[..compared];
        let different = stored
            .iter()
            .zip(verifier)
            .map(|(a, b)| (a ^ b).count_ones());
        different.sum::<u32>() <= self.verifier_reach
    }
}

/// Add the oldest that stand in a place, so many at most.
fn oldest((first, others): (u32, &[u32]), most: usize, met: &mut Vec<u32>) {
    met.push(first);
    met.extend_from_slice(&others[..others.len().min(most - 1)]);
}

fn ascending(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[pymethods]
impl Stored {
    /// `tables`: of each the moves, the bits of a fingerprint and of the prefix, the radius, the limit of a place one bit away.
    /// `fields`: where the fingerprint begins in a record, where the verifier does, and where its band keys end.
    #[new]
    #[pyo3(signature = (*, tables, fields, bands, band_rest, limit, reach, verifier_reach))]
    fn new(
        tables: Vec<(Vec<Move>, u32, u32, u32, usize)>,
        fields: (usize, usize, usize),
        bands: usize,
        band_rest: u32,
        limit: usize,
        reach: u32,
        verifier_reach: u32,
    ) -> Self {
        let tables: Vec<_> = tables
            .into_iter()
            .map(|(moves, bits, prefix, radius, neighbours)| Table {
                moves,
                bits,
                prefix,
                radius,
                neighbours,
            })
            .collect();
        let (fingerprint, verifier, end) = fields;
        Self {
            records: Records {
                chunks: VecDeque::new(),
                first: 1,
                next: 1,
            },
            fields: Fields {
                fingerprint,
                verifier,
                end,
                bands,
            },
            of_tables: tables.iter().map(|_| Places::new()).collect(),
            of_bands: (0..bands).map(|_| Places::new()).collect(),
            tables,
            band_rest,
            limit,
            reach,
            verifier_reach,
        }
    }

    /// The numbers of all that match, ascending, with their distances; and how many were compared. `copy`: a page that is
    /// met wherever it stands.
    fn matches(
        &self,
        fingerprint: u64,
        verifier: &[u8],
        copy: Option<u32>,
    ) -> (Vec<(u32, u32)>, usize) {
        let mut met = self.met_in_tables(fingerprint);
        met.extend(copy);
        let met = ascending(met);
        let mut all = self.met_in_bands(verifier);
        all.extend(&met);
        let all = ascending(all);
        let matching = all.iter().filter_map(|&number| {
            let distance = (fingerprint ^ self.fingerprint(number)).count_ones();
            let is_match = distance <= self.reach
                && (met.binary_search(&number).is_ok() || self.shares_band(number, verifier))
                && self.verified(number, verifier);
            is_match.then_some((number, distance))
        });
        (matching.collect(), all.len())
    }

    /// The numbers of all that stand in the places that the tables' probes read, ascending.
    fn met(&self, fingerprint: u64) -> Vec<u32> {
        ascending(self.met_in_tables(fingerprint))
    }

    /// The record of this number.
    fn record<'py>(&self, py: Python<'py>, number: u32) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.records.get(number))
    }

    /// Store a record under the next number; whether one of its places takes no more. `stands`: it has a fingerprint.
    fn add(&mut self, record: &[u8], stands: bool) -> bool {
        let number = self.records.push(record);
        let (records, fields, rest) = (&self.records, &self.fields, self.band_rest);
        let mut full = false;
        if !stands {
            return full;
        }
        for (table, places) in self.tables.iter().zip(&mut self.of_tables) {
            let place_of = |number| table.place(fields.fingerprint(records.get(number)));
            full |= places.stand(number, self.limit, place_of);
        }
        for (band, places) in self.of_bands.iter_mut().enumerate() {
            let key = |number| fields.key(fields.verifier(records.get(number)), band);
            if key(number) != 0 {
                full |= places.stand(number, self.limit, |number| u64::from(key(number) >> rest));
            }
        }
        full
    }

    /// Forget a record: the oldest.
    fn forget(&mut self, number: u32, stands: bool) {
        let (records, fields, rest) = (&self.records, &self.fields, self.band_rest);
        for (table, places) in self.tables.iter().zip(&mut self.of_tables) {
            if stands {
                let place_of = |number| table.place(fields.fingerprint(records.get(number)));
                places.leave(number, place_of);
            }
        }
        for (band, places) in self.of_bands.iter_mut().enumerate() {
            let key = |number| fields.key(fields.verifier(records.get(number)), band);
            if stands && key(number) != 0 {
                places.leave(number, |number| u64::from(key(number) >> rest));
            }
        }
        self.records.drop_before(number + 1);
    }
}
