//! The names of tensors in the files of each type, and which rows of which tensors a parameter is.

use super::config::{DecoderConfig, NormQkType};
use super::families::Kind;

/// Rows of a tensor of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// The tensor.
    pub(super) name: String,
    /// The first of the rows.
    pub(super) start: usize,
    /// How many they are.
    pub(super) rows: usize,
    /// How many rows the tensor has.
    pub(super) of: usize,
}

impl Piece {
    fn whole(name: String, rows: usize) -> Piece {
        Piece { name, start: 0, rows, of: rows }
    }

    /// Whether it is the whole tensor.
    pub(super) fn is_whole(&self) -> bool {
        self.rows == self.of
    }
}

/// The groups in which the rows of a parameter are in the files, and how many heads of queries, keys and values each
/// group has, where they are together.
pub(super) fn groups_of_heads(kind: Kind, config: &DecoderConfig, name: &str) -> Option<(usize, [usize; 3])> {
    let together = matches!(kind, Kind::NeoX | Kind::Falcon) && name.contains(".attn.qkv.");
    together.then(|| (config.groups(), [config.n_head / config.groups(), 1, 1]))
}

/// The rows that a parameter with so many `rows` consists of, one below the other.
pub(super) fn pieces(kind: Kind, config: &DecoderConfig, name: &str, rows: usize) -> Vec<Piece> {
    let (part, end) = name.rsplit_once('.').unwrap_or((name, "weight"));
    let whole = |path: String| vec![Piece::whole(format!("{path}.{end}"), rows)];
    let root = match kind {
        Kind::NeoX => "gpt_neox",
        Kind::Falcon => "transformer",
        Kind::Opt => "model.decoder",
        _ => "model",
    };
    let Some((layer, part)) = part.strip_prefix("h.").and_then(|rest| rest.split_once('.')) else {
        return whole(match (part, kind) {
            ("lm_head", Kind::NeoX) => "embed_out".to_owned(),
            ("lm_head", _) => "lm_head".to_owned(),
            _ => format!("{root}.{}", outside(kind, part)),
        });
    };
    let block = format!("{root}.{}.{layer}", if kind == Kind::Falcon { "h" } else { "layers" });
    let attention = format!(
        "{block}.{}",
        match kind {
            Kind::NeoX => "attention",
            Kind::Falcon => "self_attention",
            _ => "self_attn",
        }
    );
    if let Some((expert, part)) = part.strip_prefix("mlp.experts.").and_then(|rest| rest.split_once('.')) {
        let (experts, names) = match kind {
            Kind::Mixtral => ("block_sparse_moe", ["w1", "w3", "w2"]),
            _ => ("mlp", ["gate_proj", "up_proj", "down_proj"]),
        };
        let name = match part {
            "fc_1" => names[0],
            "fc_2" => names[1],
            _ => names[2],
        };
        return whole(format!("{block}.{experts}.experts.{expert}.{name}"));
    }
    match (part, kind) {
        ("attn.qkv", Kind::NeoX | Kind::Falcon) => whole(format!("{attention}.query_key_value")),
        ("attn.qkv", Kind::Phi3) => whole(format!("{attention}.qkv_proj")),
        ("attn.qkv", _) => {
            let width = config.head_width();
            let heads = [("q", config.n_head), ("k", config.groups()), ("v", config.groups())];
            let piece = |(one, heads)| Piece::whole(format!("{attention}.{one}_proj.{end}"), heads * width);
            heads.map(piece).to_vec()
        }
        ("attn.norm_q" | "attn.norm_k", _) => {
            let own = &part[part.len() - 1..];
            if config.norm_qk_type == NormQkType::PerHead {
                let width = config.head_width();
                let piece = |head| Piece::whole(format!("{attention}.{own}_layernorm.norms.{head}.{end}"), width);
                return (0..rows / width).map(piece).collect();
            }
            let norm = if kind == Kind::Phi { "layernorm" } else { "norm" };
            whole(format!("{attention}.{own}_{norm}"))
        }
        ("attn.proj", _) => whole(format!(
            "{attention}.{}",
            match kind {
                Kind::NeoX | Kind::Falcon | Kind::Phi => "dense",
                Kind::Opt => "out_proj",
                _ => "o_proj",
            }
        )),
        ("mlp.fc_1" | "mlp.fc_2", Kind::Phi3) => {
            let start = if part == "mlp.fc_1" { 0 } else { rows };
            vec![Piece { name: format!("{block}.mlp.gate_up_proj.{end}"), start, rows, of: 2 * rows }]
        }
        _ => whole(format!("{block}.{}", inside(kind, config, part))),
    }
}

/// The name of what is in no block.
fn outside(kind: Kind, part: &str) -> &'static str {
    match (part, kind) {
        ("wte", Kind::NeoX) => "embed_in",
        ("wte", Kind::Falcon) => "word_embeddings",
        ("wte", _) => "embed_tokens",
        ("wpe", _) => "embed_positions",
        ("wte_proj", _) => "project_in",
        ("head_proj", _) => "project_out",
        (_, Kind::NeoX | Kind::Opt) => "final_layer_norm",
        (_, Kind::Phi) => "final_layernorm",
        (_, Kind::Falcon) => "ln_f",
        _ => "norm",
    }
}

/// The name of a norm or of a layer of the feed-forward part in a block.
fn inside<'a>(kind: Kind, config: &DecoderConfig, part: &'a str) -> &'a str {
    let two_norms = config.parallel_residual && !config.shared_attention_norm;
    match (part, kind) {
        ("norm_1", Kind::Opt) => "self_attn_layer_norm",
        ("norm_1", Kind::Falcon) if two_norms => "ln_attn",
        ("norm_1", _) => "input_layernorm",
        ("norm_2", Kind::Opt) => "final_layer_norm",
        ("norm_2", Kind::Falcon) if two_norms => "ln_mlp",
        ("norm_2", Kind::Gemma2 | Kind::Gemma3) => "pre_feedforward_layernorm",
        ("norm_2" | "post_attention_norm", _) => "post_attention_layernorm",
        ("post_mlp_norm", _) => "post_feedforward_layernorm",
        ("mlp.gate", Kind::Mixtral) => "block_sparse_moe.gate",
        ("mlp.fc", Kind::Phi) => "mlp.fc1",
        ("mlp.proj", Kind::Phi) => "mlp.fc2",
        ("mlp.fc", Kind::Opt) => "fc1",
        ("mlp.proj", Kind::Opt) => "fc2",
        ("mlp.fc", Kind::StarCoder2) => "mlp.c_fc",
        ("mlp.proj", Kind::StarCoder2) => "mlp.c_proj",
        ("mlp.fc", _) => "mlp.dense_h_to_4h",
        ("mlp.proj", Kind::NeoX | Kind::Falcon) => "mlp.dense_4h_to_h",
        ("mlp.fc_1", _) => "mlp.gate_proj",
        ("mlp.fc_2", _) => "mlp.up_proj",
        ("mlp.proj", _) => "mlp.down_proj",
        (other, _) => other,
    }
}
