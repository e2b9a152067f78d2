//! What a column is: its name, its type, and what ClickHouse calls that.

#[cfg(doc)]
use crate::column::Values;

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

    /// What stands in rows that were written before there was such a column, as a
    /// literal of ClickHouse.
    pub(crate) fn zero(self) -> &'static str {
        match self {
            Self::Boolean => "false",
            Self::Uint32
            | Self::Uint64
            | Self::Int64
            | Self::Float64
            | Self::Seconds
            | Self::Millis => "0",
            Self::Text | Self::Category => "''",
            Self::Uuid => "'00000000-0000-0000-0000-000000000000'",
            Self::Ipv4 => "'0.0.0.0'",
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
