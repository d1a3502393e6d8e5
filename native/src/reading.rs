//! One pass over a normalised text: tokens, and from them the gate and the verifier; beside them the digest.

use crate::characters::Kinds;
use crate::digest::Digest;
use crate::gate::Gate;
use crate::hashing::{gram_hash, token_hash};
use crate::sketch::{Shape, Sketch};

/// The parts of a profile that the kernel needs.
#[derive(Clone, Copy)]
pub struct Recipe {
    pub bits: u32,
    pub zero_sum: bool,
    pub cap: u64,
    pub min_features: usize,
    pub sketch: Shape,
}

/// `simhash.signature.profiles.Signature`, but for the tag of the digest.
pub struct Signature {
    pub gate: Option<u64>,
    pub verifier: Option<Vec<u8>>,
    pub digest: Option<u128>,
    pub features: u64,
}

#[derive(Clone, Copy)]
struct Token {
    hash: u64,
    unspaced: bool,
}

/// A text that is being read.
pub struct Reading<'a> {
    kinds: &'a Kinds,
    recipe: Recipe,
    gate: Gate,
    sketch: Sketch,
    digest: Digest,
    last: Option<Token>,
    /// Whether the token before the last one is of a script without spaces.
    led: bool,
}

/// Bytes of text a distinct feature, about; only to begin with tables of the right size.
const BYTES_A_FEATURE: usize = 5;
const MOST_EXPECTED: usize = 1 << 13;

impl<'a> Reading<'a> {
    pub fn new(kinds: &'a Kinds, recipe: Recipe, bytes: usize) -> Self {
        let gate = Gate::new(recipe.cap, (bytes / BYTES_A_FEATURE).min(MOST_EXPECTED));
        let (sketch, digest) = (Sketch::new(recipe.sketch), Digest::new(bytes));
        Self {
            kinds,
            recipe,
            gate,
            sketch,
            digest,
            last: None,
            led: false,
        }
    }

    /// Go on with this part, in pieces of at most `limit` characters; no token reaches over their seams.
    pub fn part(&mut self, mut text: &str, limit: usize) {
        while !text.is_empty() {
            let (piece, rest) = text.split_at(self.kinds.piece(text, limit));
            self.piece(piece.as_bytes());
            text = rest;
        }
    }

    fn piece(&mut self, text: &[u8]) {
        let (mut at, mut stretch) = (0, 0);
        while at < text.len() {
            let (kind, width) = self.kinds.at(text, at);
            let start = at;
            at += width;
            if kind.runs() {
                at = self.kinds.end_of_run(text, at);
                self.token(&text[start..at], kind.is_unspaced());
            } else if kind.is_single() {
                self.token(&text[start..at], true);
            } else if kind.is_space() {
                at = self.kinds.end_of_space(text, at);
                let plain = text[start] == b' ' && at == start + 1;
                if !plain || start == stretch || at == text.len() {
                    self.digest.add(&text[stretch..start]);
                    self.digest.space();
                    stretch = at;
                }
            }
        }
        self.digest.add(&text[stretch..]);
    }

    #[inline(always)]
    fn token(&mut self, text: &[u8], unspaced: bool) {
        let token = Token {
            hash: token_hash(text),
            unspaced,
        };
        self.sketch.add(token.hash);
        self.pair(token);
    }

    /// The features of `simhash.features.schemes.TokenPairs`: the one that begins at the last token is known with the next.
    #[inline]
    fn pair(&mut self, token: Token) {
        if let Some(last) = self.last {
            if last.unspaced && token.unspaced {
                self.gate.add(gram_hash(&[last.hash, token.hash]));
            } else if !(last.unspaced && self.led) {
                self.gate.add(gram_hash(&[last.hash]));
            }
            self.led = last.unspaced;
        }
        self.last = Some(token);
    }

    pub fn finish(mut self) -> Signature {
        if let Some(last) = self.last.filter(|last| !(last.unspaced && self.led)) {
            self.gate.add(gram_hash(&[last.hash]));
        }
        let (distinct, gate) = self.gate.finish(self.recipe.bits, self.recipe.zero_sum);
        let near = distinct > 0 && distinct >= self.recipe.min_features;
        Signature {
            gate: near.then_some(gate),
            verifier: if near { self.sketch.finish() } else { None },
            digest: self.digest.finish(),
            features: self.gate.total,
        }
    }
}
