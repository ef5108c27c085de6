//! Bytes of control packets: decoding and encoding, one body file per version.
