//! A batch: columns of equal length under one specification.

use std::{ops::Range, sync::Arc};

use crate::{column::Column, column_error::ColumnError, spec::ColumnSpec};

/// Rows, as columns. Keeps: as many columns as specifications, each of the
/// specified type, all of the same length, nulls only where they may be.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    specs: Arc<[ColumnSpec]>,
    columns: Vec<Column>,
    rows: usize,
}

impl Rows {
    /// A batch without rows.
    pub fn empty(specs: Arc<[ColumnSpec]>) -> Self {
        let columns = specs.iter().map(|spec| Column::empty(spec.kind)).collect();
        Self {
            specs,
            columns,
            rows: 0,
        }
    }

    /// Columns in the order of their specifications.
    ///
    /// # Errors
    /// Where they don't fit the specifications or one another.
    pub fn new(specs: Arc<[ColumnSpec]>, columns: Vec<Column>) -> Result<Self, ColumnError> {
        if specs.len() != columns.len() {
            return Err(ColumnError::ColumnCount {
                expected: specs.len(),
                found: columns.len(),
            });
        }
        let rows = columns.first().map_or(0, Column::len);
        for (spec, column) in specs.iter().zip(&columns) {
            check(spec, column, rows)?;
        }
        Ok(Self {
            specs,
            columns,
            rows,
        })
    }

    /// Puts the rows of `other` behind these.
    ///
    /// # Errors
    /// [`ColumnError::SpecsDiffer`], and [`ColumnError::TooLarge`] where a
    /// column would pass 4 GiB; the batch is then as it was.
    pub fn append(&mut self, other: Self) -> Result<(), ColumnError> {
        if !Arc::ptr_eq(&self.specs, &other.specs) && self.specs != other.specs {
            return Err(ColumnError::SpecsDiffer);
        }
        for (mine, theirs) in self.columns.iter().zip(&other.columns) {
            mine.can_append(theirs)?;
        }
        self.rows += other.rows;
        for (mine, theirs) in self.columns.iter_mut().zip(other.columns) {
            mine.append(theirs)?;
        }
        Ok(())
    }

    /// The specifications of the columns.
    pub fn specs(&self) -> &Arc<[ColumnSpec]> {
        &self.specs
    }

    /// The columns, in the order of the specifications.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The memory that the values take, in bytes.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(Column::byte_size).sum()
    }

    /// A copy of some rows, for bisection. A range that goes beyond the last row
    /// is cut there.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let end = range.end.min(self.rows);
        let start = range.start.min(end);
        Self {
            specs: self.specs.clone(),
            columns: self.columns.iter().map(|c| c.slice(start..end)).collect(),
            rows: end - start,
        }
    }
}

fn check(spec: &ColumnSpec, column: &Column, rows: usize) -> Result<(), ColumnError> {
    if column.kind() != spec.kind {
        return Err(ColumnError::WrongKind {
            name: spec.name.clone(),
            expected: spec.kind,
            found: column.kind(),
        });
    }
    if column.len() != rows {
        return Err(ColumnError::RowCount {
            name: spec.name.clone(),
            expected: rows,
            found: column.len(),
        });
    }
    if !spec.nullable && column.nulls().is_some_and(|nulls| nulls.contains(&1)) {
        return Err(ColumnError::UnexpectedNull {
            name: spec.name.clone(),
        });
    }
    Ok(())
}
