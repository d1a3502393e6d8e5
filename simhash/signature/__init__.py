"""From features to bits: fingerprint, verifier, band keys, digest; and the profiles that say which."""
