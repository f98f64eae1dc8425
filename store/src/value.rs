//! Values of columns and parameters, in which both databases are spoken to.

/// A value of a column or a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// A text.
    Text(String),
}

/// What can be given to a statement.
pub trait ToValue {
    /// The value.
    fn to_value(&self) -> Value;
}

/// What can be read from a row.
pub trait FromValue: Sized {
    /// The value, or itself if it is of another kind.
    fn from_value(value: Value) -> Result<Self, Value>;
}

macro_rules! whole_numbers {
    ($($kind:ty),*) => {$(
        impl ToValue for $kind {
            fn to_value(&self) -> Value {
                Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
            }
        }
        impl FromValue for $kind {
            fn from_value(value: Value) -> Result<Self, Value> {
                match value {
                    Value::Integer(n) => <$kind>::try_from(n).map_err(|_| value),
                    other => Err(other),
                }
            }
        }
    )*};
}
whole_numbers!(u16, u32, u64, i64);

impl ToValue for f64 {
    fn to_value(&self) -> Value {
        Value::Real(*self)
    }
}

impl ToValue for bool {
    fn to_value(&self) -> Value {
        Value::Integer(i64::from(*self))
    }
}

impl ToValue for str {
    fn to_value(&self) -> Value {
        Value::Text(self.to_string())
    }
}

impl ToValue for String {
    fn to_value(&self) -> Value {
        Value::Text(self.clone())
    }
}

impl ToValue for Value {
    fn to_value(&self) -> Value {
        self.clone()
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, ToValue::to_value)
    }
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn to_value(&self) -> Value {
        (**self).to_value()
    }
}

impl FromValue for f64 {
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Real(x) => Ok(x),
            Value::Integer(n) => Ok(n as f64),
            other => Err(other),
        }
    }
}

impl FromValue for bool {
    fn from_value(value: Value) -> Result<Self, Value> {
        i64::from_value(value).map(|n| n != 0)
    }
}

impl FromValue for String {
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Text(text) => Ok(text),
            other => Err(other),
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Null => Ok(None),
            other => T::from_value(other).map(Some),
        }
    }
}

/// The values of a row.
macro_rules! row {
    ($($value:expr),* $(,)?) => { [$($crate::value::ToValue::to_value(&$value)),*] };
}

/// The values of a statement's `?1`, `?2`, ...
macro_rules! params {
    ($($value:expr),* $(,)?) => { &$crate::value::row![$($value),*] };
}
pub(crate) use {params, row};
