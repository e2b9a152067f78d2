//! Why columns and batches are refused.

#[cfg(doc)]
use crate::column::Values;
use crate::spec::ColumnType;

/// Why columns don't make a batch. Every case is a fault of whoever made the
/// column (the normalizer or the host), never of a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// The values are not of the column's type.
    #[error("a column of type {} holds {expected}, but was given {found}", kind.name())]
    WrongValues {
        /// The type.
        kind: ColumnType,
        /// The case of [`Values`] that carries it.
        expected: &'static str,
        /// The case that came.
        found: &'static str,
    },
    /// Offsets that don't begin at 0, fall, or don't end with the data.
    #[error("the offsets of a column of type {} don't describe its data", kind.name())]
    BrokenOffsets {
        /// The type.
        kind: ColumnType,
    },
    /// A byte other than 0 and 1 in a boolean column or in a null map.
    #[error("a boolean or null map of a column of type {} holds a byte other than 0 and 1", kind.name())]
    NotBoolean {
        /// The type.
        kind: ColumnType,
    },
    /// An odd number of UUID halves.
    #[error("a column of UUIDs has two values a row, but was given {values} values")]
    HalfUuid {
        /// How many values came.
        values: usize,
    },
    /// The null map is not as long as the column.
    #[error("a column of {rows} rows came with a null map of {nulls}")]
    NullsLength {
        /// Rows in the column.
        rows: usize,
        /// Bytes in the null map.
        nulls: usize,
    },
    /// Two columns of different types can't be joined.
    #[error("a column of type {} can't take rows of type {}", expected.name(), found.name())]
    KindsDiffer {
        /// The type of the column.
        expected: ColumnType,
        /// The type of the rows.
        found: ColumnType,
    },
    /// The values together pass what 32-bit offsets can say.
    #[error("{bytes} bytes in one column are more than a batch can hold (4 GiB); flush earlier")]
    TooLarge {
        /// The size that it would have had.
        bytes: u64,
    },
    /// The number of columns is not that of the specification.
    #[error("{expected} columns were expected, {found} came")]
    ColumnCount {
        /// Columns in the specification.
        expected: usize,
        /// Columns that came.
        found: usize,
    },
    /// A column is not as long as the first one.
    #[error("column `{name}` has {found} rows where the first column has {expected}")]
    RowCount {
        /// The column.
        name: String,
        /// Rows of the first column.
        expected: usize,
        /// Rows of this one.
        found: usize,
    },
    /// A column is of another type than its specification says.
    #[error("column `{name}` is specified as {}, but came as {}", expected.name(), found.name())]
    WrongKind {
        /// The column.
        name: String,
        /// The specified type.
        expected: ColumnType,
        /// The type that came.
        found: ColumnType,
    },
    /// A null in a column that can't have one.
    #[error("column `{name}` holds a null, but is not nullable")]
    UnexpectedNull {
        /// The column.
        name: String,
    },
    /// Two batches of different columns can't be joined.
    #[error("a batch can't take rows of other columns; flush it first")]
    SpecsDiffer,
}
