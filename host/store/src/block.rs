//! A batch as the bytes of one insert: ClickHouse's Native format, compressed.
//!
//! The layout is that of client revision 0, which is what the HTTP interface
//! reads: the number of columns and of rows as LEB128, then for each column its
//! name, its type, and (if there are rows) its values, little-endian. A nullable
//! column has its null map, one byte a row, before the values.
//!
//! Compression is the standard LZ4 frame, announced by `Content-Encoding: lz4`,
//! with a checksum of the content that ClickHouse verifies.

use std::{io::Write, sync::Arc};

use bytes::Bytes;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use crate::{
    column::{Column, Values},
    rows::Rows,
    spec::ColumnSpec,
};

/// One insert, ready to be sent as often as it takes: the bytes never change.
/// Cloning shares them.
#[derive(Debug, Clone)]
pub struct EncodedBlock {
    specs: Arc<[ColumnSpec]>,
    rows: usize,
    native_len: usize,
    body: Bytes,
}

impl EncodedBlock {
    /// Encodes and compresses a batch; an empty one gives a valid block too.
    ///
    /// # Errors
    /// [`BlockError::Compress`], which says that the compressor is broken: there
    /// is nothing in a batch that could fail.
    pub fn new(rows: &Rows) -> Result<Self, BlockError> {
        let native = encode_native(rows);
        let frame = FrameInfo::new()
            // Blocks that stand alone are compressed faster; at 1,000 rows there
            // is one block anyway.
            .block_mode(BlockMode::Independent)
            .block_size(BlockSize::Max1MB)
            .content_size(Some(native.len() as u64))
            .content_checksum(true);
        let mut encoder =
            FrameEncoder::with_frame_info(frame, Vec::with_capacity(native.len() / 2));
        encoder.write_all(&native).map_err(BlockError::Compress)?;
        let body = encoder
            .finish()
            .map_err(|error| BlockError::Compress(error.into()))?;
        Ok(Self {
            specs: rows.specs().clone(),
            rows: rows.len(),
            native_len: native.len(),
            body: body.into(),
        })
    }

    /// The columns, in the order in which they are sent.
    pub fn specs(&self) -> &[ColumnSpec] {
        &self.specs
    }

    /// How many rows it holds.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Its size before compression, in bytes.
    pub fn native_len(&self) -> usize {
        self.native_len
    }

    /// What is sent: the Native block as an LZ4 frame.
    pub fn body(&self) -> &Bytes {
        &self.body
    }
}

/// Why a batch could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The LZ4 encoder failed.
    #[error("the batch could not be compressed: {0}")]
    Compress(std::io::Error),
}

/// A batch as one block of ClickHouse's Native format, uncompressed.
pub fn encode_native(rows: &Rows) -> Vec<u8> {
    let mut out = Vec::with_capacity(capacity(rows));
    put_varint(&mut out, rows.columns().len() as u64);
    put_varint(&mut out, rows.len() as u64);
    for (spec, column) in rows.specs().iter().zip(rows.columns()) {
        put_bytes(&mut out, spec.name.as_bytes());
        put_bytes(&mut out, spec.wire_type().as_bytes());
        if !rows.is_empty() {
            put_column(&mut out, spec, column);
        }
    }
    out
}

fn put_column(out: &mut Vec<u8>, spec: &ColumnSpec, column: &Column) {
    if spec.nullable {
        match column.nulls() {
            Some(nulls) => out.extend_from_slice(nulls),
            None => out.resize(out.len() + column.len(), 0),
        }
    }
    match column.values() {
        Values::Booleans(values) => out.extend_from_slice(values),
        Values::Uint32s(values) => put_fixed(out, values, u32::to_le_bytes),
        // A UUID is two numbers, the high half first: as they lie.
        Values::Uint64s(values) => put_fixed(out, values, u64::to_le_bytes),
        Values::Int64s(values) => put_fixed(out, values, i64::to_le_bytes),
        Values::Float64s(values) => put_fixed(out, values, f64::to_le_bytes),
        Values::Blobs(blobs) => blobs.iter().for_each(|value| put_bytes(out, value)),
    }
}

fn put_fixed<T: Copy, const N: usize>(out: &mut Vec<u8>, values: &[T], bytes: fn(T) -> [u8; N]) {
    let start = out.len();
    out.resize(start + values.len() * N, 0);
    for (to, &value) in out[start..].chunks_exact_mut(N).zip(values) {
        to.copy_from_slice(&bytes(value));
    }
}

fn put_bytes(out: &mut Vec<u8>, value: &[u8]) {
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Enough in all but rare cases, so that the buffer is allocated once: a string
/// needs five bytes for its length at most, and four of them are counted as its
/// offset already.
fn capacity(rows: &Rows) -> usize {
    let per_column: usize = rows
        .specs()
        .iter()
        .map(|spec| spec.name.len() + 64 + rows.len() * usize::from(spec.nullable))
        .sum();
    20 + rows.bytes() + per_column
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{column::Blobs, spec::ColumnType};

    #[test]
    fn a_block_is_laid_out_as_the_format_says() {
        let specs: Arc<[ColumnSpec]> = [
            ColumnSpec::new("s", ColumnType::Category),
            ColumnSpec::nullable("n", ColumnType::Uint32),
            ColumnSpec::new("u", ColumnType::Uuid),
        ]
        .into();
        let text = Values::Blobs(Blobs::from_values(["ab", ""]).unwrap());
        let columns = vec![
            Column::new(ColumnType::Category, text, None).unwrap(),
            Column::new(
                ColumnType::Uint32,
                Values::Uint32s(vec![0x0102_0304, 0]),
                Some(vec![0, 1]),
            )
            .unwrap(),
            Column::new(ColumnType::Uuid, Values::Uint64s(vec![1, 2, 3, 4]), None).unwrap(),
        ];
        let native = encode_native(&Rows::new(specs, columns).unwrap());

        let mut expected = vec![3, 2];
        expected.extend_from_slice(b"\x01s\x06String\x02ab\x00");
        expected.extend_from_slice(b"\x01n\x10Nullable(UInt32)\x00\x01\x04\x03\x02\x01\0\0\0\0");
        expected.extend_from_slice(b"\x01u\x04UUID");
        for half in [1u8, 2, 3, 4] {
            expected.extend_from_slice(&[half, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert_eq!(native, expected);
    }

    #[test]
    fn lengths_above_127_take_more_bytes() {
        let mut out = Vec::new();
        put_varint(&mut out, 127);
        put_varint(&mut out, 128);
        put_varint(&mut out, u64::from(u32::MAX));
        assert_eq!(out, [0x7f, 0x80, 0x01, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    }

    #[test]
    fn encoding_twice_gives_the_same_bytes() {
        let specs: Arc<[ColumnSpec]> = [ColumnSpec::new("t", ColumnType::Millis)].into();
        let rows = Rows::new(specs, vec![Column::repeat_millis(1_700_000_000_000, 5000)]).unwrap();
        let (a, b) = (
            EncodedBlock::new(&rows).unwrap(),
            EncodedBlock::new(&rows).unwrap(),
        );
        assert_eq!(a.body(), b.body());
        assert!(a.body().len() < a.native_len() / 2);
    }
}
