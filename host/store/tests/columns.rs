//! Batches are joined and cut like lists of rows, whatever their columns.

mod common;

use std::sync::Arc;

use cdr_store::{Blobs, Column, ColumnError, ColumnSpec, ColumnType, Rows, Values, block};
use common::data::{any_rows, every_kind, texts};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn appending_is_concatenation(chunks in prop::collection::vec(any_rows(6), 0..5)) {
        let mut all = Rows::empty(every_kind());
        for chunk in &chunks {
            all.append(chunk.clone()).unwrap();
        }
        let expected: Vec<_> = chunks.iter().flat_map(texts).collect();
        prop_assert_eq!(all.len(), expected.len());
        prop_assert_eq!(texts(&all), expected);
        // What was joined is as sound as what came.
        let again = Rows::new(all.specs().clone(), rebuilt(&all)).unwrap();
        prop_assert_eq!(texts(&again), texts(&all));
    }

    #[test]
    fn a_slice_holds_these_rows(rows in any_rows(12), from in 0..15usize, to in 0..15usize) {
        let slice = rows.slice(from..to);
        let all = texts(&rows);
        let end = to.min(all.len());
        let expected = &all[from.min(end)..end];
        prop_assert_eq!(texts(&slice), expected);
        prop_assert_eq!(slice.len(), expected.len());
        let again = Rows::new(slice.specs().clone(), rebuilt(&slice)).unwrap();
        prop_assert_eq!(texts(&again), texts(&slice));
    }

    #[test]
    fn halves_make_the_whole_again(rows in any_rows(12), cut in 0..13usize) {
        let mut joined = rows.slice(0..cut);
        joined.append(rows.slice(cut..rows.len())).unwrap();
        prop_assert_eq!(texts(&joined), texts(&rows));
        prop_assert_eq!(block::encode_native(&joined), block::encode_native(&rows));
    }

    #[test]
    fn bytes_grow_with_rows(rows in any_rows(12)) {
        let mut twice = rows.clone();
        twice.append(rows.clone()).unwrap();
        prop_assert!(twice.bytes() >= rows.bytes());
    }
}

fn rebuilt(rows: &Rows) -> Vec<Column> {
    let parts = |c: &Column| (c.kind(), c.values().clone(), c.nulls().map(<[u8]>::to_vec));
    let rebuild = |(kind, values, nulls)| Column::new(kind, values, nulls).unwrap();
    rows.columns().iter().map(|c| rebuild(parts(c))).collect()
}

fn text(offsets: Vec<u32>, data: &[u8]) -> Result<Column, ColumnError> {
    let blobs = Blobs {
        offsets,
        data: data.to_vec(),
    };
    Column::new(ColumnType::Text, Values::Blobs(blobs), None)
}

#[test]
fn broken_columns_are_refused() {
    assert!(text(vec![0, 1, 3], b"abc").is_ok());
    assert!(text(vec![0], b"").is_ok());
    for (offsets, data) in [
        (vec![], &b""[..]),
        (vec![1, 3], b"abc"),
        (vec![0, 2, 1, 3], b"abc"),
        (vec![0, 2], b"abc"),
        (vec![0, 4], b"abc"),
    ] {
        let kind = ColumnType::Text;
        assert_eq!(
            text(offsets, data),
            Err(ColumnError::BrokenOffsets { kind })
        );
    }
    let uint = |nulls| Column::new(ColumnType::Uint32, Values::Uint32s(vec![1, 2]), nulls);
    assert!(uint(Some(vec![0, 1])).is_ok());
    assert!(matches!(
        uint(Some(vec![0])),
        Err(ColumnError::NullsLength { .. })
    ));
    assert!(matches!(
        uint(Some(vec![0, 2])),
        Err(ColumnError::NotBoolean { .. })
    ));
    let wrong = Column::new(ColumnType::Millis, Values::Uint32s(vec![]), None);
    assert!(matches!(wrong, Err(ColumnError::WrongValues { .. })));
    let half = Column::new(ColumnType::Uuid, Values::Uint64s(vec![1]), None);
    assert!(matches!(half, Err(ColumnError::HalfUuid { values: 1 })));
    let boolean = Column::new(ColumnType::Boolean, Values::Booleans(vec![2]), None);
    assert!(matches!(boolean, Err(ColumnError::NotBoolean { .. })));
}

#[test]
fn a_batch_refuses_columns_that_do_not_fit() {
    let specs: Arc<[ColumnSpec]> = [
        ColumnSpec::new("a", ColumnType::Uint32),
        ColumnSpec::nullable("b", ColumnType::Uint32),
    ]
    .into();
    let uints = |values: &[u32], nulls: Option<Vec<u8>>| {
        Column::new(ColumnType::Uint32, Values::Uint32s(values.to_vec()), nulls).unwrap()
    };
    let refused = |columns| Rows::new(specs.clone(), columns).unwrap_err().to_string();

    assert!(refused(vec![uints(&[1], None)]).contains("2 columns were expected, 1 came"));
    let uneven = refused(vec![uints(&[1], None), uints(&[1, 2], None)]);
    assert_eq!(uneven, "column `b` has 2 rows where the first column has 1");
    let null = refused(vec![uints(&[1], Some(vec![1])), uints(&[1], None)]);
    assert_eq!(null, "column `a` holds a null, but is not nullable");
    let kind = refused(vec![uints(&[1], None), Column::repeat_millis(0, 1)]);
    assert!(kind.contains("`b` is specified as uint32, but came as millis"));

    let mut rows = Rows::empty(specs);
    let other = Rows::empty([ColumnSpec::new("a", ColumnType::Uint32)].into());
    assert_eq!(rows.append(other), Err(ColumnError::SpecsDiffer));
}

#[test]
fn a_column_never_outgrows_its_offsets() {
    // Zeroed and never touched, so that the memory is not really used.
    let size = 0x9000_0000u32;
    let large = || {
        let blobs = Blobs {
            offsets: vec![0, size],
            data: vec![0; size as usize],
        };
        let column = Column::new(ColumnType::Text, Values::Blobs(blobs), None).unwrap();
        Rows::new(
            [ColumnSpec::new("t", ColumnType::Text)].into(),
            vec![column],
        )
        .unwrap()
    };
    let mut rows = large();
    let bytes = 2 * u64::from(size);
    assert_eq!(rows.append(large()), Err(ColumnError::TooLarge { bytes }));
    assert_eq!(rows.len(), 1);
}
