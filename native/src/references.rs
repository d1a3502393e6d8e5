//! Character references and white space (`plain` in `simhash/reading/html_blocks.py`).

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// What named references mean, told by Python.
pub struct References {
    names: HashMap<String, String, RandomState>,
    longest_bare: usize,
    windows_1252: Vec<char>,
}

/// White space as Python's `str.split` has it.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Whether no white space begins with this byte. What does beyond ASCII begins with C2, E1, E2, or is E3 80 80.
fn is_plain(bytes: &[u8], at: usize) -> bool {
    match bytes[at] {
        0..=b' ' | 0xC2 | 0xE1 | 0xE2 => false,
        0xE3 => !bytes[at..].starts_with(&[0xE3, 0x80, 0x80]),
        _ => true,
    }
}

/// Whether a space stands there between two plain characters of one stretch, which begins at `from`.
fn is_single_space(bytes: &[u8], from: usize, at: usize) -> bool {
    bytes[at] == b' ' && at > from && at + 1 < bytes.len() && is_plain(bytes, at + 1)
}

/// Where the stretch of plain characters and single spaces ends that begins at `from`.
fn stretch(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        let stop = bytes.len().min(at + LANES);
        while at < stop && (is_plain(bytes, at) || is_single_space(bytes, from, at)) {
            at += 1;
        }
        if at < stop || at == bytes.len() {
            return at;
        }
        while bytes[at..].first_chunk().is_some_and(are_words) {
            at += LANES - 1;
        }
    }
}

/// So many bytes are looked at together, which the compiler makes a few instructions of; and two behind them.
const LANES: usize = 16;

/// Whether all but the last of them are plain or single spaces, if the one before is. What does not fit is not looked
/// at closely: it may still be so.
fn are_words(bytes: &[u8; LANES + 2]) -> bool {
    let mut is_other = false;
    for at in 0..LANES {
        let (byte, next, third) = (bytes[at], bytes[at + 1], bytes[at + 2]);
        is_other |= (byte < b' ') | (byte == 0xC2) | (byte == 0xE1) | (byte == 0xE2);
        is_other |= (byte == 0xE3) & (next == 0x80) & (third == 0x80);
        is_other |= (byte == b' ') & (next == b' ');
    }
    !is_other
}

impl References {
    pub fn new(names: Vec<(String, String)>, longest_bare: usize, windows_1252: &str) -> Self {
        Self {
            names: names.into_iter().collect(),
            longest_bare,
            windows_1252: windows_1252.chars().collect(),
        }
    }

    /// Append text as it is read: references resolved, white space collapsed.
    pub fn plain(&self, text: &str, into: &mut String) {
        if memchr::memchr(b'&', text.as_bytes()).is_some() {
            Self::collapse(&self.resolved(text, false), into);
        } else {
            Self::collapse(text, into);
        }
    }

    /// The same of an attribute's value.
    pub fn plain_value(&self, value: &str, into: &mut String) {
        Self::collapse(&self.resolved(value, true), into);
    }

    /// Append the words of a text, a space between them.
    pub fn collapse(text: &str, into: &mut String) {
        let bytes = text.as_bytes();
        let start = into.len();
        let mut at = 0;
        while at < bytes.len() {
            // A stretch of plain characters and single spaces goes over whole; the rest by characters.
            let from = at;
            at = stretch(bytes, from);
            into.push_str(&text[from..at]);
            if at == bytes.len() {
                break;
            }
            let c = text[at..].chars().next().unwrap_or(' ');
            at += c.len_utf8();
            if !is_space(c) {
                into.push(c);
            } else if into.len() > start && !into.ends_with(' ') {
                into.push(' ');
            }
        }
        if into.len() > start && into.ends_with(' ') {
            into.pop();
        }
    }

    fn resolved(&self, text: &str, is_value: bool) -> String {
        let bytes = text.as_bytes();
        let mut made = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(ahead) = memchr::memchr(b'&', &bytes[at..]) {
            made.push_str(&text[at..at + ahead]);
            at += ahead;
            let used = self.reference(&text[at..], is_value, &mut made);
            if used == 0 {
                made.push('&');
                at += 1;
            }
            at += used;
        }
        made.push_str(&text[at..]);
        made
    }

    /// Append what the reference at the beginning of the text means; how many bytes it takes, 0 if it is none. In a value
    /// a name without `;` counts only where nothing of a URL's query follows (13.2.5.73).
    fn reference(&self, text: &str, is_value: bool, into: &mut String) -> usize {
        let bytes = text.as_bytes();
        if bytes.get(1) == Some(&b'#') {
            return self.number(bytes, into);
        }
        let most = bytes.len().min(33);
        let mut end = 1;
        while end < most && bytes[end].is_ascii_alphanumeric() {
            end += 1;
        }
        if end < 3 || !bytes[1].is_ascii_alphabetic() {
            return 0;
        }
        if bytes.get(end) == Some(&b';') {
            end += 1;
        }
        let name = &text[1..end];
        let is_query = is_value && !name.ends_with(';') && bytes.get(end) == Some(&b'=');
        if let Some(meant) = self.names.get(name).filter(|_| !is_query) {
            into.push_str(meant);
            return end;
        }
        if is_value {
            return 0;
        }
        for length in (2..=(name.len() - 1).min(self.longest_bare)).rev() {
            if let Some(meant) = self.names.get(&name[..length]) {
                into.push_str(meant);
                return 1 + length;
            }
        }
        0
    }

    fn number(&self, bytes: &[u8], into: &mut String) -> usize {
        let is_hexadecimal = matches!(bytes.get(2), Some(b'x' | b'X'));
        let (start, base) = if is_hexadecimal { (3, 16) } else { (2, 10) };
        let mut end = start;
        let (mut number, mut digits) = (0u32, 0);
        while let Some(digit) = bytes.get(end).and_then(|&b| char::from(b).to_digit(base)) {
            if digit > 0 || digits > 0 {
                digits += 1;
            }
            if digits < 8 {
                number = number * base + digit;
            }
            end += 1;
        }
        if end == start {
            return 0;
        }
        into.extend(self.character(if digits < 8 { number } else { 0 }));
        end + usize::from(bytes.get(end) == Some(&b';'))
    }

    fn character(&self, number: u32) -> Option<char> {
        if (0x80..0xA0).contains(&number) {
            let meant = self.windows_1252[number as usize - 0x80];
            return Some(meant).filter(|&c| c != '\u{fffd}');
        }
        if number == 0 {
            return Some('\u{fffd}');
        }
        let Some(c) = char::from_u32(number) else {
            return Some('\u{fffd}');
        };
        let is_control = number < 0x20 && !matches!(number, 9 | 10 | 12 | 13) || number == 0x7F;
        let is_none = (0xFDD0..0xFDF0).contains(&number) || number & 0xFFFE == 0xFFFE;
        (!is_control && !is_none).then_some(c)
    }
}
