//! What the kernel knows of characters: their kinds and folded forms, both told by Python, so that there is one truth.

/// Kinds that begin and end a token by themselves: Han, kana, Hangul (`simhash/features/segment.py`).
const SINGLE: u8 = 4 | 8 | 16;
/// Kinds of which a run is one token: letters of spaced and of unspaced scripts.
const RUN: u8 = 1 | 32;
/// Kinds of scripts that put no spaces between words.
const UNSPACED: u8 = SINGLE | 32;
/// White space as `str.split` has it; beside the kinds, which all are lower bits.
const SPACE: u8 = 128;

const CODE_POINTS: usize = 0x11_0000;

/// The kind of one character.
#[derive(Clone, Copy)]
pub struct Kind(u8);

impl Kind {
    #[inline]
    pub fn is_single(self) -> bool {
        self.0 & SINGLE != 0
    }

    #[inline]
    pub fn runs(self) -> bool {
        self.0 & RUN != 0
    }

    #[inline]
    pub fn is_unspaced(self) -> bool {
        self.0 & UNSPACED != 0
    }

    #[inline]
    pub fn is_space(self) -> bool {
        self.0 & SPACE != 0
    }

    /// Whether a long text may be cut after it.
    fn separates(self) -> bool {
        self.0 & !SPACE == 0
    }
}

/// Kinds of all code points.
pub struct Kinds(Box<[u8; CODE_POINTS]>);

impl Kinds {
    /// From one byte a code point; None if there are more or fewer, or a letter or digit of ASCII is of no run.
    pub fn new(table: &[u8]) -> Option<Self> {
        let kinds = Self(table.to_vec().into_boxed_slice().try_into().ok()?);
        let mut plain = (0..=b'z').filter(u8::is_ascii_alphanumeric);
        plain
            .all(|character| Kind(kinds.0[usize::from(character)]).runs())
            .then_some(kinds)
    }

    /// Kind and width in bytes of the character that begins at `at`.
    #[inline(always)]
    pub fn at(&self, text: &[u8], at: usize) -> (Kind, usize) {
        if text[at] < 0x80 {
            return (Kind(self.0[usize::from(text[at])]), 1);
        }
        let (code_point, width) = decode(text, at);
        (Kind(self.0[code_point as usize]), width)
    }

    /// Where the run that goes on at `at` ends.
    #[inline(always)]
    pub fn end_of_run(&self, text: &[u8], mut at: usize) -> usize {
        at += plain_ahead(&text[at..]);
        while at < text.len() {
            let (kind, width) = self.at(text, at);
            if !kind.runs() {
                break;
            }
            at += width;
        }
        at
    }

    /// Where the white space that goes on at `at` ends.
    #[inline(always)]
    pub fn end_of_space(&self, text: &[u8], mut at: usize) -> usize {
        while at < text.len() {
            let (kind, width) = self.at(text, at);
            if !kind.is_space() {
                break;
            }
            at += width;
        }
        at
    }

    /// Bytes of the first piece of a text: at most `limit` characters, cut after a separator if there is one.
    pub fn piece(&self, text: &str, limit: usize) -> usize {
        if text.len() <= limit {
            return text.len();
        }
        let Some((end, _)) = text.char_indices().nth(limit) else {
            return text.len();
        };
        let separator = text[..end]
            .char_indices()
            .rev()
            .find(|(_, c)| Kind(self.0[*c as usize]).separates());
        separator.map_or(end, |(at, c)| at + c.len_utf8())
    }
}

/// How many letters and digits of ASCII stand at the beginning; the last few of a text are not looked at.
#[inline(always)]
fn plain_ahead(text: &[u8]) -> usize {
    let mut ahead = 0;
    while let Some(&bytes) = text[ahead..].first_chunk() {
        let others = !plain(u64::from_le_bytes(bytes)) & HIGH;
        if others != 0 {
            return ahead + others.trailing_zeros() as usize / 8;
        }
        ahead += bytes.len();
    }
    ahead
}

const HIGH: u64 = 0x8080_8080_8080_8080;

/// The high bit of each of eight bytes that is a letter or digit of ASCII.
#[inline(always)]
fn plain(bytes: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let within = |bytes: u64, first: u8, last: u8| {
        let (from, beyond) = (0x80 - u64::from(first), 0x7F - u64::from(last));
        (bytes + EACH * from) & !(bytes + EACH * beyond)
    };
    let low = bytes & !HIGH;
    (within(low, b'0', b'9') | within(low | (EACH * 0x20), b'a', b'z')) & !bytes & HIGH
}

/// The character that begins at `at` of valid UTF-8, and its width in bytes.
#[inline(always)]
fn decode(text: &[u8], at: usize) -> (u32, usize) {
    let low = |by: usize| u32::from(text[at + by] & 0x3F);
    match text[at] {
        first @ ..0x80 => (u32::from(first), 1),
        first @ ..0xE0 => (u32::from(first & 0x1F) << 6 | low(1), 2),
        first @ ..0xF0 => (u32::from(first & 0x0F) << 12 | low(1) << 6 | low(2), 3),
        first => (
            u32::from(first & 0x07) << 18 | low(1) << 12 | low(2) << 6 | low(3),
            4,
        ),
    }
}

/// Stands for a character whose form depends on its neighbours.
const CONTEXTUAL: u32 = u32::MAX;
/// Below it a form is one code point, from it on a place in the list of longer ones.
const LONGER: u32 = 1 << 31;

/// Folded forms (NFKC, then case folding) of the characters whose form is the same wherever they stand.
pub struct Forms {
    table: Vec<u32>,
    longer: Vec<String>,
}

impl Forms {
    /// Forms of code points below `known`: those that change, and those that depend on their neighbours.
    pub fn new(known: u32, changed: &[(u32, String)], contextual: &[u32]) -> Self {
        let mut forms = Self {
            table: (0..known).collect(),
            longer: Vec::new(),
        };
        for (code_point, form) in changed {
            forms.set(*code_point, form);
        }
        for &code_point in contextual {
            forms.table[code_point as usize] = CONTEXTUAL;
        }
        forms
    }

    fn set(&mut self, code_point: u32, form: &str) {
        let mut characters = form.chars();
        self.table[code_point as usize] = match (characters.next(), characters.next()) {
            (Some(only), None) => only as u32,
            _ => {
                self.longer.push(form.to_owned());
                LONGER | (self.longer.len() - 1) as u32
            }
        };
    }

    /// The folded text; None when a character's form depends on its neighbours: then Python has to do it.
    pub fn folded(&self, text: &str) -> Option<String> {
        let bytes = text.as_bytes();
        let mut folded = String::with_capacity(text.len() + text.len() / 8);
        let mut copied = 0;
        let mut at = 0;
        while let Some(ahead) = first_beyond_ascii(&bytes[at..]) {
            at += ahead;
            let (code_point, width) = decode(bytes, at);
            let form = *self.table.get(code_point as usize).unwrap_or(&CONTEXTUAL);
            if form != code_point {
                folded.push_str(&text[copied..at]);
                self.push(form, &mut folded)?;
                copied = at + width;
            }
            at += width;
        }
        folded.push_str(&text[copied..]);
        folded.make_ascii_lowercase(); // all that folding does to ASCII; the other forms hold no capitals
        Some(folded)
    }

    fn push(&self, form: u32, folded: &mut String) -> Option<()> {
        match form {
            CONTEXTUAL => return None,
            LONGER.. => folded.push_str(&self.longer[(form & !LONGER) as usize]),
            _ => folded.push(char::from_u32(form)?),
        }
        Some(())
    }
}

#[inline]
fn first_beyond_ascii(bytes: &[u8]) -> Option<usize> {
    const STRIDE: usize = 16;
    let ascii = bytes
        .chunks_exact(STRIDE)
        .take_while(|chunk| chunk.is_ascii())
        .count()
        * STRIDE;
    bytes[ascii..]
        .iter()
        .position(|byte| !byte.is_ascii())
        .map(|ahead| ascii + ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_decoded_at_every_width() {
        for character in [
            'a',
            '\u{80}',
            'é',
            '\u{7ff}',
            '\u{800}',
            '漢',
            '\u{ffff}',
            '\u{10000}',
            '\u{10ffff}',
        ] {
            let text = format!("x{character}");
            assert_eq!(
                decode(text.as_bytes(), 1),
                (character as u32, character.len_utf8())
            );
        }
    }

    #[test]
    fn a_text_folds_unless_a_character_depends_on_its_neighbours() {
        let forms = Forms::new(0x400, &[(0xC9, "é".into()), (0xDF, "ss".into())], &[0x301]);
        assert_eq!(
            forms.folded("A long line of ASCII: Éß!").as_deref(),
            Some("a long line of ascii: éss!")
        );
        assert_eq!(forms.folded("E\u{301}"), None);
        assert_eq!(forms.folded("\u{400}"), None);
    }

    #[test]
    fn pieces_end_after_a_separator_where_there_is_one() {
        let mut table = vec![0; CODE_POINTS];
        ('0'..='z').filter(char::is_ascii_alphanumeric).for_each(|c| table[c as usize] = 1);
        let kinds = Kinds::new(&table).unwrap();
        assert_eq!(kinds.piece("aa aaaa", 4), 3);
        assert_eq!(kinds.piece("aaaaaaa", 4), 4);
        assert_eq!(kinds.piece("aéaa", 4), 5);
    }
}
