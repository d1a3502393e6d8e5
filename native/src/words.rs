//! Words, hashed and added up and nothing else: the limit that `benchmarks/texts.py` holds the kernel against.

use crate::gate::BitCounts;
use crate::hashing::token_hash;

/// Words as they lie in a text, one after the other.
pub struct Words {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    pub fn new(words: &[String]) -> Self {
        let mut made = Self {
            text: Vec::new(),
            ends: Vec::with_capacity(words.len()),
        };
        for word in words {
            made.text.extend_from_slice(word.as_bytes());
            made.ends.push(made.text.len());
        }
        made
    }

    #[inline(always)]
    fn hashes(&self) -> impl Iterator<Item = u64> {
        self.ends.iter().scan(0, |start, &end| {
            let word = &self.text[*start..end];
            *start = end;
            Some(token_hash(word))
        })
    }

    /// All hashes, exclusive-or: hashing alone.
    pub fn hashed(&self) -> u64 {
        self.hashes().fold(0, |all, hash| all ^ hash)
    }

    /// The simhash of the words with their counts as weights.
    pub fn simhash(&self) -> u64 {
        let mut counts = BitCounts::new();
        counts.add_all(self.hashes());
        counts.simhash(64, false)
    }
}
