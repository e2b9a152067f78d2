//! Rows to columns: what `#[derive(Row)]` builds on.

use crate::component::telecom::cdr::types as wit;
use std::borrow::Cow;
use std::net::Ipv4Addr;

pub use wit::ColumnType;

/// One column of a row type.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its name in the table.
    pub name: &'static str,
    /// How it is stored.
    pub kind: ColumnType,
    /// Whether a row may leave it out.
    pub nullable: bool,
}

/// A row: a struct whose fields, in order, are the columns. Derive it.
///
/// | Rust type | column |
/// |---|---|
/// | `bool` | boolean |
/// | `u32`, `u64`, `i64`, `f64` | uint32, uint64, int64, float64 |
/// | `u32` with `#[column(seconds)]` | seconds since the Unix epoch (DateTime) |
/// | `i64` with `#[column(millis)]` | milliseconds since the Unix epoch (DateTime64(3)) |
/// | `String`, `&str`, `Cow<str>` | text |
/// | the same with `#[column(category)]` | text of few distinct values (LowCardinality) |
/// | `uuid::Uuid` | UUID |
/// | `std::net::Ipv4Addr` | IPv4 |
/// | `Option` of one of these | nullable (not with `category`) |
///
/// `#[column(name = "…")]` gives a column another name than its field has.
pub trait Row {
    /// The columns, in order.
    const COLUMNS: &'static [Column];
    /// One builder a column.
    #[doc(hidden)]
    type Builders;
    /// Builders with room for so many rows.
    #[doc(hidden)]
    fn builders(rows: usize) -> Self::Builders;
    /// Adds this row to the columns.
    #[doc(hidden)]
    fn push(self, builders: &mut Self::Builders);
    /// The columns as the host takes them.
    #[doc(hidden)]
    fn finish(builders: Self::Builders) -> Vec<wit::Column>;
}

/// A type that can be a field of a [`Row`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a column",
    note = "columns are bool, u32, u64, i64, f64, String, &str, Cow<str>, Uuid, Ipv4Addr, or an Option of one of these"
)]
pub trait Value {
    /// The column type, where no attribute says otherwise.
    const KIND: ColumnType;
    /// Whether values may be absent.
    const NULLABLE: bool;
    /// What collects the values.
    type Builder: Builder;
    /// Adds this value.
    fn push(self, builder: &mut Self::Builder);
}

/// Collects the values of one column.
pub trait Builder {
    /// A builder with room for so many rows.
    fn with_capacity(rows: usize) -> Self;
    /// The column as the host takes it.
    fn finish(self) -> wit::Column;
    /// Adds what stands in for an absent value.
    fn push_absent(&mut self);
}

/// A column of fixed-width values.
#[derive(Debug)]
pub struct Fixed<T>(Vec<T>);

macro_rules! fixed {
    ($($rust:ty => $kind:ident, $stored:ty, $case:ident, $convert:expr;)*) => {$(
        impl Value for $rust {
            const KIND: ColumnType = ColumnType::$kind;
            const NULLABLE: bool = false;
            type Builder = Fixed<$stored>;
            fn push(self, builder: &mut Self::Builder) {
                let convert: fn($rust) -> $stored = $convert;
                builder.0.push(convert(self));
            }
        }
    )*};
}
fixed! {
    bool => Boolean, u8, Booleans, u8::from;
    u32 => Uint32, u32, Uint32s, |value| value;
    u64 => Uint64, u64, Uint64s, |value| value;
    i64 => Int64, i64, Int64s, |value| value;
    f64 => Float64, f64, Float64s, |value| value;
    Ipv4Addr => Ipv4, u32, Uint32s, u32::from;
}

macro_rules! fixed_builder {
    ($($stored:ty => $case:ident;)*) => {$(
        impl Builder for Fixed<$stored> {
            fn with_capacity(rows: usize) -> Self {
                Self(Vec::with_capacity(rows))
            }
            fn finish(self) -> wit::Column {
                wit::Column { values: wit::Values::$case(self.0), nulls: None }
            }
            fn push_absent(&mut self) {
                self.0.push(Default::default());
            }
        }
    )*};
}
fixed_builder! {
    u8 => Booleans;
    u32 => Uint32s;
    u64 => Uint64s;
    i64 => Int64s;
    f64 => Float64s;
}

/// A column of UUIDs: two words a row.
#[derive(Debug)]
pub struct Uuids(Vec<u64>);

impl Value for uuid::Uuid {
    const KIND: ColumnType = ColumnType::Uuid;
    const NULLABLE: bool = false;
    type Builder = Uuids;
    fn push(self, builder: &mut Uuids) {
        let (high, low) = self.as_u64_pair();
        builder.0.extend([high, low]);
    }
}

impl Builder for Uuids {
    fn with_capacity(rows: usize) -> Self {
        Self(Vec::with_capacity(rows * 2))
    }
    fn finish(self) -> wit::Column {
        wit::Column {
            values: wit::Values::Uint64s(self.0),
            nulls: None,
        }
    }
    fn push_absent(&mut self) {
        self.0.extend([0, 0]);
    }
}

/// A column of texts.
#[derive(Debug)]
pub struct Texts(wit::Blobs);

impl Texts {
    fn push(&mut self, text: &str) {
        self.0.data.extend_from_slice(text.as_bytes());
        self.end();
    }
    /// A batch is bounded far below 4 GiB, so offsets don't wrap; if they ever
    /// did, the host would refuse the column.
    fn end(&mut self) {
        self.0.offsets.push(self.0.data.len() as u32);
    }
}

impl Builder for Texts {
    fn with_capacity(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self(wit::Blobs {
            offsets,
            data: Vec::with_capacity(rows * 16),
        })
    }
    fn finish(self) -> wit::Column {
        wit::Column {
            values: wit::Values::Blobs(self.0),
            nulls: None,
        }
    }
    fn push_absent(&mut self) {
        self.end();
    }
}

macro_rules! text {
    ($($rust:ty),*) => {$(
        impl Value for $rust {
            const KIND: ColumnType = ColumnType::Text;
            const NULLABLE: bool = false;
            type Builder = Texts;
            fn push(self, builder: &mut Texts) {
                builder.push(&self);
            }
        }
    )*};
}
text!(&str, String, Cow<'_, str>);

/// A nullable column.
#[derive(Debug)]
pub struct Nullable<B> {
    values: B,
    nulls: Vec<u8>,
    any: bool,
}

impl<V: Value> Value for Option<V> {
    const KIND: ColumnType = V::KIND;
    const NULLABLE: bool = {
        assert!(!V::NULLABLE, "an Option of an Option can't be a column");
        true
    };
    type Builder = Nullable<V::Builder>;
    fn push(self, builder: &mut Self::Builder) {
        builder.nulls.push(u8::from(self.is_none()));
        match self {
            Some(value) => value.push(&mut builder.values),
            None => {
                builder.any = true;
                builder.values.push_absent();
            }
        }
    }
}

impl<B: Builder> Builder for Nullable<B> {
    fn with_capacity(rows: usize) -> Self {
        Self {
            values: B::with_capacity(rows),
            nulls: Vec::with_capacity(rows),
            any: false,
        }
    }
    fn finish(self) -> wit::Column {
        wit::Column {
            nulls: self.any.then_some(self.nulls),
            ..self.values.finish()
        }
    }
    fn push_absent(&mut self) {
        self.any = true;
        self.nulls.push(1);
        self.values.push_absent();
    }
}
