//! Bit strings, most significant bit first.

/// Appends numbers of so many bits.
#[derive(Default)]
pub struct BitWriter {
    pub bytes: Vec<u8>,
    /// The bits that fill no word yet, right-aligned.
    open: u128,
    count: u32,
}

impl BitWriter {
    /// The lowest `count` bits (0 to 64) of `value`; the others must be 0.
    #[inline]
    pub fn put(&mut self, value: u64, count: u32) {
        self.open = self.open << count | u128::from(value);
        self.count += count;
        if self.count >= 64 {
            self.count -= 64;
            let word = (self.open >> self.count) as u64;
            self.bytes.extend_from_slice(&word.to_be_bytes());
            self.open &= (1 << self.count) - 1;
        }
    }

    /// Fill the last byte with zeros.
    pub fn align(&mut self) {
        let bytes = self.count.div_ceil(8) as usize;
        if bytes > 0 {
            let word = (self.open << (64 - self.count)) as u64;
            self.bytes.extend_from_slice(&word.to_be_bytes()[..bytes]);
        }
        (self.open, self.count) = (0, 0);
    }
}

/// How many bytes must lie behind the last bit that is looked at.
pub const PADDING: usize = 16;

/// The 64 bits that begin at the bit `place`.
#[inline]
pub fn peek(data: &[u8], place: usize) -> u64 {
    let window: &[u8; 9] = data[place >> 3..][..9].first_chunk().expect("nine bytes");
    let word = u64::from_be_bytes(*window.first_chunk().expect("eight of nine"));
    let offset = place & 7;
    word << offset | u64::from(window[8]) >> (8 - offset)
}

/// How many bits `peek_most` surely has.
pub const LOADED: u16 = 57;

/// At least `LOADED` bits that begin at the bit `place`, in one load, zeros behind them; None behind the end.
#[inline(always)]
pub fn peek_most(data: &[u8], place: usize) -> Option<u64> {
    let begin = place >> 3;
    let window: &[u8; 8] = data.get(begin..begin + 8)?.first_chunk()?;
    Some(u64::from_be_bytes(*window) << (place & 7))
}

/// The first `count` (0 to 64) of 64 bits, right-aligned.
#[inline]
pub fn front(bits: u64, count: u32) -> u64 {
    if count == 0 { 0 } else { bits >> (64 - count) }
}
