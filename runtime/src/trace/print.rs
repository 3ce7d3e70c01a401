//! placeholder until the text format lands
use super::{Block, BoundSymbol};
/// One line.
pub fn print_symbol(_block: &Block, symbol: &BoundSymbol) -> String {
    symbol.name().to_owned()
}
