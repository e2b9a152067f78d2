//! One column of a batch: its values and its nulls.
//!
//! Same shape as the WIT contract's `column`, so that what a normalizer returns
//! becomes a [`Column`] by moving its vectors. [`Column::new`] checks the shape
//! once; whatever holds a `Column` may rely on it.

use std::ops::Range;

use crate::{column_error::ColumnError, spec::ColumnType};

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
