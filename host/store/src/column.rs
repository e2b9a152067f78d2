//! One column of a batch: its type, its values, its nulls.
//!
//! Same shape as the WIT contract's `column`, so that what a normalizer returns
//! becomes a [`Column`] by moving its vectors. [`Column::new`] checks the shape
//! once; whatever holds a `Column` may rely on it.

use std::ops::Range;

/// How a column is stored, and which case of [`Values`] carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// [`Values::Booleans`], one byte a row, 0 or 1.
    Boolean,
    /// [`Values::Uint32s`].
    Uint32,
    /// [`Values::Uint64s`].
    Uint64,
    /// [`Values::Int64s`].
    Int64,
    /// [`Values::Float64s`].
    Float64,
    /// [`Values::Blobs`], UTF-8.
    Text,
    /// [`Values::Blobs`], UTF-8, few distinct values; never nullable.
    Category,
    /// [`Values::Uint64s`], two a row: the high half, then the low half.
    Uuid,
    /// [`Values::Uint32s`]: 192.0.2.1 is `0xC000_0201`.
    Ipv4,
    /// [`Values::Uint32s`], seconds since the Unix epoch.
    Seconds,
    /// [`Values::Int64s`], milliseconds since the Unix epoch.
    Millis,
}

impl ColumnType {
    /// Every type, in the order of the contract.
    pub const ALL: [ColumnType; 11] = [
        Self::Boolean,
        Self::Uint32,
        Self::Uint64,
        Self::Int64,
        Self::Float64,
        Self::Text,
        Self::Category,
        Self::Uuid,
        Self::Ipv4,
        Self::Seconds,
        Self::Millis,
    ];

    /// The name of the type in the contract, as in `category`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::Text => "text",
            Self::Category => "category",
            Self::Uuid => "uuid",
            Self::Ipv4 => "ipv4",
            Self::Seconds => "seconds",
            Self::Millis => "millis",
        }
    }

    /// The ClickHouse type of a block's column. ClickHouse converts a plain
    /// `String` into the table's `LowCardinality(String)` by itself.
    fn wire_name(self) -> &'static str {
        match self {
            Self::Boolean => "Bool",
            Self::Uint32 => "UInt32",
            Self::Uint64 => "UInt64",
            Self::Int64 => "Int64",
            Self::Float64 => "Float64",
            Self::Text | Self::Category => "String",
            Self::Uuid => "UUID",
            Self::Ipv4 => "IPv4",
            Self::Seconds => "DateTime('UTC')",
            Self::Millis => "DateTime64(3, 'UTC')",
        }
    }
}

/// One column of a table or of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ColumnSpec {
    /// The ClickHouse name: a letter or `_`, then letters, digits, `_`; at most
    /// 64 characters.
    pub name: String,
    /// The type.
    pub kind: ColumnType,
    /// Whether rows may leave it out.
    pub nullable: bool,
}

impl ColumnSpec {
    /// A column that every row fills.
    pub fn new(name: impl Into<String>, kind: ColumnType) -> Self {
        Self {
            name: name.into(),
            kind,
            nullable: false,
        }
    }

    /// A column that rows may leave out.
    pub fn nullable(name: impl Into<String>, kind: ColumnType) -> Self {
        Self {
            nullable: true,
            ..Self::new(name, kind)
        }
    }

    /// The ClickHouse type in the table, as `system.columns` spells it.
    pub fn table_type(&self) -> String {
        match self.kind {
            ColumnType::Category => "LowCardinality(String)".into(),
            _ => self.wire_type(),
        }
    }

    /// The ClickHouse type in a block that is sent.
    pub fn wire_type(&self) -> String {
        let name = self.kind.wire_name();
        match self.nullable {
            true => format!("Nullable({name})"),
            false => name.into(),
        }
    }
}

/// Byte strings, stored end to end: value `i` is
/// `data[offsets[i] .. offsets[i + 1]]`, and `n` values have `n + 1` offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blobs {
    /// Where each value begins; the first is 0, they never fall, the last is
    /// the length of `data`.
    pub offsets: Vec<u32>,
    /// The bytes.
    pub data: Vec<u8>,
}

impl Default for Blobs {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            data: Vec::new(),
        }
    }
}

impl Blobs {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values in order. Values that the offsets don't describe are skipped.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.offsets
            .windows(2)
            .filter_map(|pair| self.data.get(pair[0] as usize..pair[1] as usize))
    }

    /// From values, one after the other.
    ///
    /// # Errors
    /// [`ColumnError::TooLarge`] above 4 GiB in all.
    pub fn from_values<V: AsRef<[u8]>>(
        values: impl IntoIterator<Item = V>,
    ) -> Result<Self, ColumnError> {
        let mut blobs = Self::default();
        for value in values {
            blobs.data.extend_from_slice(value.as_ref());
            let end = u32::try_from(blobs.data.len()).map_err(|_| ColumnError::TooLarge {
                bytes: blobs.data.len() as u64,
            })?;
            blobs.offsets.push(end);
        }
        Ok(blobs)
    }

    fn is_sound(&self) -> bool {
        self.offsets.first() == Some(&0)
            && self.offsets.is_sorted()
            && self.offsets.last().map(|&end| end as usize) == Some(self.data.len())
    }

    fn can_append(&self, other: &Self) -> Result<(), ColumnError> {
        let bytes = self.data.len() as u64 + other.data.len() as u64;
        match u32::try_from(bytes) {
            Ok(_) => Ok(()),
            Err(_) => Err(ColumnError::TooLarge { bytes }),
        }
    }

    /// The caller has asked [`Blobs::can_append`]: the sums fit.
    fn append(&mut self, other: Self) {
        let base = self.data.len() as u32;
        self.data.extend_from_slice(&other.data);
        self.offsets
            .extend(other.offsets.iter().skip(1).map(|end| base + end));
    }

    fn slice(&self, range: Range<usize>) -> Self {
        let offsets = &self.offsets[range.start..=range.end];
        let (first, last) = (self.offsets[range.start], self.offsets[range.end]);
        Self {
            offsets: offsets.iter().map(|at| at - first).collect(),
            data: self.data[first as usize..last as usize].to_vec(),
        }
    }
}

/// The values of one column, row after row; [`ColumnType`] says which case
/// carries what.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// One byte a row, 0 or 1.
    Booleans(Vec<u8>),
    /// 32-bit numbers.
    Uint32s(Vec<u32>),
    /// 64-bit numbers; for UUIDs two a row.
    Uint64s(Vec<u64>),
    /// Signed 64-bit numbers.
    Int64s(Vec<i64>),
    /// Floating-point numbers.
    Float64s(Vec<f64>),
    /// Byte strings.
    Blobs(Blobs),
}

impl Values {
    fn empty(kind: ColumnType) -> Self {
        match kind {
            ColumnType::Boolean => Self::Booleans(Vec::new()),
            ColumnType::Uint32 | ColumnType::Ipv4 | ColumnType::Seconds => {
                Self::Uint32s(Vec::new())
            }
            ColumnType::Uint64 | ColumnType::Uuid => Self::Uint64s(Vec::new()),
            ColumnType::Int64 | ColumnType::Millis => Self::Int64s(Vec::new()),
            ColumnType::Float64 => Self::Float64s(Vec::new()),
            ColumnType::Text | ColumnType::Category => Self::Blobs(Blobs::default()),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Booleans(_) => "booleans",
            Self::Uint32s(_) => "uint32s",
            Self::Uint64s(_) => "uint64s",
            Self::Int64s(_) => "int64s",
            Self::Float64s(_) => "float64s",
            Self::Blobs(_) => "blobs",
        }
    }

    /// Values, not rows: a UUID counts as two.
    fn len(&self) -> usize {
        match self {
            Self::Booleans(v) => v.len(),
            Self::Uint32s(v) => v.len(),
            Self::Uint64s(v) => v.len(),
            Self::Int64s(v) => v.len(),
            Self::Float64s(v) => v.len(),
            Self::Blobs(b) => b.len(),
        }
    }

    fn byte_size(&self) -> usize {
        match self {
            Self::Booleans(v) => v.len(),
            Self::Uint32s(v) => v.len() * 4,
            Self::Uint64s(v) => v.len() * 8,
            Self::Int64s(v) => v.len() * 8,
            Self::Float64s(v) => v.len() * 8,
            Self::Blobs(b) => b.data.len() + b.offsets.len() * 4,
        }
    }
}

/// The values of one column and which of them are null.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    kind: ColumnType,
    values: Values,
    nulls: Option<Vec<u8>>,
}

impl Column {
    /// Takes values as a normalizer returns them. `nulls`: one byte a row, 1
    /// where the value is null; `None` where none is.
    ///
    /// # Errors
    /// Values of another type, offsets that fall or leave the data, null maps of
    /// another length, bytes that are neither 0 nor 1 in a boolean or null map.
    pub fn new(
        kind: ColumnType,
        values: Values,
        nulls: Option<Vec<u8>>,
    ) -> Result<Self, ColumnError> {
        let expected = Values::empty(kind);
        if std::mem::discriminant(&expected) != std::mem::discriminant(&values) {
            return Err(ColumnError::WrongValues {
                kind,
                expected: expected.name(),
                found: values.name(),
            });
        }
        match &values {
            Values::Blobs(blobs) if !blobs.is_sound() => {
                return Err(ColumnError::BrokenOffsets { kind });
            }
            Values::Booleans(bytes) if bytes.iter().any(|&b| b > 1) => {
                return Err(ColumnError::NotBoolean { kind });
            }
            Values::Uint64s(halves)
                if kind == ColumnType::Uuid && !halves.len().is_multiple_of(2) =>
            {
                return Err(ColumnError::HalfUuid {
                    values: halves.len(),
                });
            }
            _ => {}
        }
        let column = Self {
            kind,
            values,
            nulls,
        };
        if let Some(nulls) = &column.nulls {
            if nulls.len() != column.len() {
                return Err(ColumnError::NullsLength {
                    rows: column.len(),
                    nulls: nulls.len(),
                });
            }
            if nulls.iter().any(|&b| b > 1) {
                return Err(ColumnError::NotBoolean { kind });
            }
        }
        Ok(column)
    }

    /// A column without rows.
    pub fn empty(kind: ColumnType) -> Self {
        Self {
            kind,
            values: Values::empty(kind),
            nulls: None,
        }
    }

    /// The same category in every row, as for `normalizer_version`.
    ///
    /// # Errors
    /// [`ColumnError::TooLarge`] above 4 GiB in all.
    pub fn repeat_category(value: &str, rows: usize) -> Result<Self, ColumnError> {
        let values = Blobs::from_values(std::iter::repeat_n(value, rows))?;
        Self::new(ColumnType::Category, Values::Blobs(values), None)
    }

    /// The same time in every row, in milliseconds since the Unix epoch.
    pub fn repeat_millis(millis: i64, rows: usize) -> Self {
        Self::millis(vec![millis; rows])
    }

    /// Times in milliseconds since the Unix epoch.
    pub fn millis(values: Vec<i64>) -> Self {
        Self {
            kind: ColumnType::Millis,
            values: Values::Int64s(values),
            nulls: None,
        }
    }

    /// The type.
    pub fn kind(&self) -> ColumnType {
        self.kind
    }

    /// The values.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// One byte a row, 1 where the value is null; `None` where none is.
    pub fn nulls(&self) -> Option<&[u8]> {
        self.nulls.as_deref()
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.values.len() / self.width()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory that values and nulls take, in bytes.
    pub fn byte_size(&self) -> usize {
        self.values.byte_size() + self.nulls.as_ref().map_or(0, Vec::len)
    }

    /// Whether [`Column::append`] would succeed.
    ///
    /// # Errors
    /// As [`Column::append`].
    pub fn can_append(&self, other: &Self) -> Result<(), ColumnError> {
        if self.kind != other.kind {
            return Err(ColumnError::KindsDiffer {
                expected: self.kind,
                found: other.kind,
            });
        }
        match (&self.values, &other.values) {
            (Values::Blobs(a), Values::Blobs(b)) => a.can_append(b),
            _ => Ok(()),
        }
    }

    /// Puts the rows of `other` behind those of this column.
    ///
    /// # Errors
    /// [`ColumnError::KindsDiffer`], and [`ColumnError::TooLarge`] where the
    /// 32-bit offsets would overflow; this column is then as it was.
    pub fn append(&mut self, other: Self) -> Result<(), ColumnError> {
        self.can_append(&other)?;
        let (before, added) = (self.len(), other.len());
        if before == 0 {
            *self = other;
            return Ok(());
        }
        self.nulls = match (self.nulls.take(), other.nulls) {
            (None, None) => None,
            (mine, theirs) => {
                let mut nulls = mine.unwrap_or_else(|| vec![0; before]);
                match theirs {
                    Some(theirs) => nulls.extend_from_slice(&theirs),
                    None => nulls.resize(before + added, 0),
                }
                Some(nulls)
            }
        };
        match (&mut self.values, other.values) {
            (Values::Booleans(a), Values::Booleans(b)) => a.extend_from_slice(&b),
            (Values::Uint32s(a), Values::Uint32s(b)) => a.extend_from_slice(&b),
            (Values::Uint64s(a), Values::Uint64s(b)) => a.extend_from_slice(&b),
            (Values::Int64s(a), Values::Int64s(b)) => a.extend_from_slice(&b),
            (Values::Float64s(a), Values::Float64s(b)) => a.extend_from_slice(&b),
            (Values::Blobs(a), Values::Blobs(b)) => a.append(b),
            // Equal kinds have equal cases: `Column::new` saw to it.
            _ => {}
        }
        Ok(())
    }

    /// A copy of some rows. A range that goes beyond the last row is cut there.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        let width = self.width();
        let at = start * width..end * width;
        let values = match &self.values {
            Values::Booleans(v) => Values::Booleans(v[at].to_vec()),
            Values::Uint32s(v) => Values::Uint32s(v[at].to_vec()),
            Values::Uint64s(v) => Values::Uint64s(v[at].to_vec()),
            Values::Int64s(v) => Values::Int64s(v[at].to_vec()),
            Values::Float64s(v) => Values::Float64s(v[at].to_vec()),
            Values::Blobs(b) => Values::Blobs(b.slice(at)),
        };
        Self {
            kind: self.kind,
            values,
            nulls: self.nulls.as_ref().map(|nulls| nulls[start..end].to_vec()),
        }
    }

    /// Values a row.
    fn width(&self) -> usize {
        match self.kind {
            ColumnType::Uuid => 2,
            _ => 1,
        }
    }
}

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
