//! One file of the log.
//!
//! | bytes | what |
//! |---|---|
//! | 8, 4, 4 | `HOMINLOG`, version, size of the file in units of 8 bytes |
//! | 8, 8 | identifier of the log, position of the first frame |
//! | 16, 16 | digest of the frame before, digest of the header |
//! | any | frames, each from a multiple of 8 on |
//! | 32 | behind the last frame, once there is a next file: `HOMINEND`, the position of its first frame, and a digest |
//!
//! A file that is used again has older frames behind its last one. They are told from newer ones by
//! their positions, which are lower than any in the new use.

use super::super::StoreError;
use super::super::frame::Digest;
use super::{failed, refused};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of the header.
pub(super) const HEADER: u64 = 64;
/// Bytes of the end.
pub(super) const END: u64 = 32;
const MAGIC: &[u8; 8] = b"HOMINLOG";
const MAGIC_OF_END: &[u8; 8] = b"HOMINEND";
const VERSION: u32 = 1;

/// A file that frames are written to.
#[derive(Debug)]
pub(super) struct Segment {
    path: PathBuf,
    file: File,
    /// The offset of the next frame.
    at: u64,
    size: u64,
}

/// The facts of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// The size that the file was made with. A shorter one has lost frames.
    pub size: u64,
    pub id: u64,
    pub first: u64,
    pub predecessor: Digest,
}

/// Where the log goes on in its last file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// The offset of the next frame.
    pub at: u64,
    /// The size of the file.
    pub size: u64,
}

impl Segment {
    /// Writes the header of a file that has its full size, and forces it to the disk.
    pub(super) fn begin(
        path: PathBuf,
        size: u64,
        id: u64,
        first: u64,
        predecessor: Digest,
    ) -> Result<Segment, StoreError> {
        let segment = Segment::open(path, Tail { at: HEADER, size })?;
        let mut header = Vec::with_capacity(HEADER as usize);
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend(((size / 8) as u32).to_le_bytes());
        header.extend(id.to_le_bytes());
        header.extend(first.to_le_bytes());
        header.extend(predecessor.bytes());
        let digest = Digest::of(&header);
        header.extend(digest.bytes());
        segment.write(&header, 0)?;
        segment.sync()?;
        Ok(segment)
    }

    /// Opens a file whose frames end at the tail.
    pub(super) fn open(path: PathBuf, Tail { at, size }: Tail) -> Result<Segment, StoreError> {
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|error| failed(&path, &error))?;
        Ok(Segment { path, file, at, size })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the offset of the next frame.
    #[cfg(test)]
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Returns true if a frame of this many bytes, and the end of the file behind it, have room.
    pub(super) fn fits(&self, frame: usize) -> bool {
        self.at + (frame as u64).next_multiple_of(8) + END <= self.size
    }

    /// Writes a frame that fits.
    pub(super) fn append(&mut self, frame: &[u8]) -> Result<(), StoreError> {
        self.write(frame, self.at)?;
        self.at += (frame.len() as u64).next_multiple_of(8);
        Ok(())
    }

    /// Writes the end of the file and forces it to the disk, with all frames. `next` is the first
    /// position in the next file.
    pub(super) fn end(&self, id: u64, next: u64) -> Result<(), StoreError> {
        self.write(&end_before(id, next), self.at)?;
        self.sync()
    }

    /// Overwrites everything from the next frame on with zeros, and forces that to the disk.
    pub(super) fn wipe_rest(&self) -> Result<(), StoreError> {
        let zeros = vec![0; 1 << 20];
        let mut at = self.at;
        while at < self.size {
            let some = (self.size - at).min(zeros.len() as u64);
            self.write(&zeros[..some as usize], at)?;
            at += some;
        }
        self.sync()
    }

    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let synced = self.file.sync_data();
        synced.map_err(|error| StoreError::Failed(format!("a sync of {}: {error}", self.path.display())))
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), StoreError> {
        self.file.write_all_at(bytes, at).map_err(|error| refused(&self.path, &error))
    }
}

/// Returns the end of a file of this log whose next file begins with this position. The digest is
/// also one of the identifier, so that no payload can be made that looks like an end.
pub(super) fn end_before(id: u64, next: u64) -> Vec<u8> {
    let mut end = Vec::with_capacity(END as usize);
    end.extend(MAGIC_OF_END);
    end.extend(next.to_le_bytes());
    end.extend(id.to_le_bytes());
    let digest = Digest::of(&end);
    end.truncate(16);
    end.extend(digest.bytes());
    end
}

/// Reads a header.
///
/// # Errors
/// Says what is wrong with it.
pub(super) fn read_header(bytes: &[u8]) -> Result<SegmentHeader, String> {
    let Some(header) = bytes.get(..HEADER as usize) else { return Err("it is shorter than a header".into()) };
    let digest = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&header[at..at + 16]);
        Digest::from_bytes(bytes)
    };
    if header[..8] != *MAGIC || digest(48) != Digest::of(&header[..48]) {
        return Err("its header is not one of a log, or is broken".into());
    }
    let half = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let version = half(8);
    if version != VERSION {
        return Err(format!("it is of version {version}, and this program knows version {VERSION}"));
    }
    let number = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&header[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let size = 8 * u64::from(half(12));
    Ok(SegmentHeader { size, id: number(16), first: number(24), predecessor: digest(32) })
}
