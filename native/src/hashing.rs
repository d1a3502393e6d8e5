//! Hashes of tokens and of their n-grams, as `simhash/features/shingles.py` specifies them.

pub use xxhash_rust::xxh3::xxh3_64 as token_hash;

/// One odd number for each place in an n-gram.
pub const MULTIPLIERS: [u64; 5] = [
    0xE220_A839_7B1D_CDAF,
    0x6E78_9E6A_A1B9_65F5,
    0x06C4_5D18_8009_454F,
    0xF88B_B8A8_724C_81ED,
    0x1B39_896A_51A8_749B,
];

/// The finaliser of MurmurHash3.
#[inline]
pub fn mix64(mut value: u64) -> u64 {
    value ^= value >> 33;
    value = value.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    value ^= value >> 33;
    value = value.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    value ^ (value >> 33)
}

/// The hash of one n-gram of at most five hashed tokens.
#[inline]
pub fn gram_hash(tokens: &[u64]) -> u64 {
    let places = tokens.iter().zip(MULTIPLIERS);
    mix64(places.fold(0, |sum, (token, by)| {
        sum.wrapping_add(token.wrapping_mul(by))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grams_are_those_of_the_python_docstring() {
        assert_eq!(gram_hash(&[1, 2]), 0xC4E4_32F6_777E_9D5A);
        assert_eq!(gram_hash(&[2, 3]), 0x1BE0_D642_B006_3C52);
    }
}
