//! Whether bytes are UTF-8, and how many of their characters are controls (`CONTROLS` in `simhash/reading/charset.py`).

use pyo3::prelude::*;

/// Bytes that are looked at together; what is found of them fits into a byte.
const STRIDE: usize = 128;

#[pyfunction]
pub fn is_utf8(py: Python<'_>, data: &[u8]) -> bool {
    py.detach(|| std::str::from_utf8(data).is_ok())
}

#[pyfunction]
pub fn count_controls(py: Python<'_>, utf8: &[u8]) -> usize {
    py.detach(|| controls(utf8))
}

fn controls(utf8: &[u8]) -> usize {
    let ascii = |part: &[u8]| part.iter().map(|&byte| is_ascii_control(byte)).sum::<u8>();
    let further = |leads: &[u8], behind: &[u8]| {
        let pairs = leads.iter().zip(behind);
        pairs.map(|(&lead, &behind)| is_further_control(lead, behind)).sum::<u8>()
    };
    let behind = utf8.get(1..).unwrap_or_default();
    let pairs = utf8.chunks(STRIDE).zip(behind.chunks(STRIDE));
    utf8.chunks(STRIDE).map(|part| usize::from(ascii(part))).sum::<usize>()
        + pairs.map(|(leads, behind)| usize::from(further(leads, behind))).sum::<usize>()
}

/// 1 or 0; without branches, so that the compiler makes vectors of it.
fn is_ascii_control(byte: u8) -> u8 {
    let is_low = u8::from(byte.wrapping_sub(1) < 0x1F);
    let is_spared = u8::from(byte.wrapping_sub(9) < 5) | u8::from(byte == 0x1B);
    (is_low & (1 - is_spared)) | u8::from(byte == 0x7F)
}

/// The same of U+0080 to U+009F, but for the line break U+0085: they are C2 and their own number.
fn is_further_control(lead: u8, behind: u8) -> u8 {
    u8::from(lead == 0xC2) & u8::from(behind.wrapping_sub(0x80) < 0x20) & u8::from(behind != 0x85)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_counted_wherever_they_stand() {
        for spaces in [0, 1, 126, 127, 128, 129, 400] {
            let before = " ".repeat(spaces);
            let count = |text: &str| controls(format!("{before}{text}").as_bytes());
            assert_eq!(count("\0\t\n\x0b\x0c\r\x1b a\u{85}\u{a0}é漢"), 0);
            assert_eq!(count("\x01\x08\x0e\x1a\x1c\x1f\x7f\u{80}\u{84}\u{86}\u{9f}"), 11);
        }
    }
}
