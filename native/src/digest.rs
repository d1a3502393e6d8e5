//! xxh3_128 of a text with each run of white space as one space and none at its ends (`simhash/signature/counting.py`, TextDigest).

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

const FLUSH_AT: usize = 1 << 18;

/// Takes the text in stretches that hold no white space but single spaces.
pub struct Digest {
    waiting: Vec<u8>,
    flushed: Option<Box<Xxh3>>,
    spaced: bool,
}

impl Digest {
    pub fn new(expected: usize) -> Self {
        Self {
            waiting: Vec::with_capacity(expected),
            flushed: None,
            spaced: false,
        }
    }

    /// White space, of any length.
    pub fn space(&mut self) {
        self.spaced = true;
    }

    pub fn add(&mut self, stretch: &[u8]) {
        if stretch.is_empty() {
            return;
        }
        if self.spaced && self.begun() {
            self.waiting.push(b' ');
        }
        self.spaced = false;
        self.waiting.extend_from_slice(stretch);
        if self.waiting.len() > FLUSH_AT {
            self.flushed.get_or_insert_default().update(&self.waiting);
            self.waiting.clear();
        }
    }

    fn begun(&self) -> bool {
        self.flushed.is_some() || !self.waiting.is_empty()
    }

    /// None if there was nothing but white space.
    pub fn finish(mut self) -> Option<u128> {
        if !self.begun() {
            return None;
        }
        Some(match &mut self.flushed {
            None => xxh3_128(&self.waiting),
            Some(hash) => {
                hash.update(&self.waiting);
                hash.digest128()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_in_stretches_is_that_of_the_whole() {
        let mut digest = Digest::new(0);
        for _ in 0..FLUSH_AT {
            digest.space();
            digest.add(b"a b");
        }
        digest.space();
        let whole = vec!["a b"; FLUSH_AT].join(" ");
        assert_eq!(digest.finish(), Some(xxh3_128(whole.as_bytes())));
    }

    #[test]
    fn there_is_no_digest_of_white_space() {
        let mut digest = Digest::new(0);
        digest.space();
        digest.add(b"");
        assert_eq!(digest.finish(), None);
    }
}
