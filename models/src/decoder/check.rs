//! What the fields of a decoder may be, each by itself and beside the others.

use std::fmt::Display;

use super::config::{DecoderConfig, DecoderError, MlpClass, NormClass, NormQkType};
use super::rope_scaling::RopeAdjustments;
use crate::activation::Activation;

/// Experts of all blocks. A small file could otherwise ask for millions of tensors; the largest published mixtures have
/// about 20,000.
const MOST_EXPERTS: usize = 1 << 16;

/// The error for a field of this value, unless it is valid.
fn check(field: &'static str, valid: bool, found: &dyn Display, expected: String) -> Result<(), DecoderError> {
    match valid {
        true => Ok(()),
        false => Err(DecoderError::Field { field, found: found.to_string(), expected }),
    }
}

impl DecoderConfig {
    /// Checks every field, and the fields against each other. The limits keep a corrupt file from asking for absurd
    /// amounts of memory.
    pub fn validate(&self) -> Result<(), DecoderError> {
        for (field, value, limit) in [
            ("block_size", self.block_size, 1 << 24),
            ("padded_vocab_size", self.padded_vocab_size, 1 << 24),
            ("n_layer", self.n_layer, 1 << 10),
            ("n_head", self.n_head, 1 << 10),
            ("n_embd", self.n_embd, 1 << 16),
            ("n_query_groups", self.n_query_groups.unwrap_or(1), 1 << 10),
            ("head_size", self.head_size.unwrap_or(1), 1 << 16),
            ("intermediate_size", self.intermediate_size.unwrap_or(1), 1 << 20),
            ("attention_scores_scalar", self.attention_scores_scalar.unwrap_or(1), 1 << 24),
            ("sliding_window_size", self.sliding_window_size.unwrap_or(1), 1 << 24),
            ("embedding_width", self.embedding_width.unwrap_or(1), 1 << 16),
            ("moe_intermediate_size", self.moe_intermediate_size.unwrap_or(1), 1 << 20),
        ] {
            check(field, (1..=limit).contains(&value), &value, format!("1 to {limit}"))?;
        }
        for (field, value) in [
            ("norm_eps", self.norm_eps),
            ("attention_logit_softcapping", self.attention_logit_softcapping.unwrap_or(1.0)),
            ("final_logit_softcapping", self.final_logit_softcapping.unwrap_or(1.0)),
            ("rope_base", self.rope_base),
            ("rope_condense_ratio", self.rope_condense_ratio),
            ("rope_adjustments.factor", self.rope_adjustments.map_or(1.0, |adjust| adjust.factor)),
            ("rope_local_base_freq", self.rope_local_base_freq.unwrap_or(1.0)),
            ("embedding_multiplier", self.embedding_multiplier.unwrap_or(1.0)),
            ("residual_multiplier", self.residual_multiplier.unwrap_or(1.0)),
            ("logits_divisor", self.logits_divisor.unwrap_or(1.0)),
            ("attention_clip", self.attention_clip.unwrap_or(1.0)),
            ("attention_multiplier", self.attention_multiplier.unwrap_or(1.0)),
        ] {
            check(field, value > 0.0 && value.is_finite(), &value, "a number above 0".into())?;
        }
        let (heads, groups, width) = (self.n_head, self.groups(), self.head_width());
        let divides = self.head_size.is_some() || self.n_embd.is_multiple_of(heads);
        check("n_embd", divides, &self.n_embd, format!("a multiple of n_head, {heads}, or head_size to be given"))?;
        check("n_query_groups", heads.is_multiple_of(groups), &groups, format!("a divisor of n_head, {heads}"))?;
        let share = self.rotary_percentage;
        check("rotary_percentage", (0.0..=1.0).contains(&share), &share, "a number from 0 to 1".into())?;
        let rotated = self.rotated_width();
        let of_heads = format!("an even number of the head's {width} values to be rotated, not {rotated}");
        check("rotary_percentage", rotated.is_multiple_of(2), &share, of_heads)?;
        let shared = !self.shared_attention_norm || self.parallel_residual;
        check("shared_attention_norm", shared, &self.shared_attention_norm, "parallel_residual with it".into())?;
        let offset = !self.norm_add_unit_offset || self.norm_class_name == NormClass::RMSNorm;
        check("norm_add_unit_offset", offset, &self.norm_add_unit_offset, "norm_class_name RMSNorm with it".into())?;
        let head_bias = !(self.lm_head_bias && self.tie_embeddings);
        check("lm_head_bias", head_bias, &self.lm_head_bias, "tie_embeddings to be false with it".into())?;
        self.check_norms()?;
        self.check_rotations()?;
        for (field, indices, needed) in [
            ("sliding_window_indices", &self.sliding_window_indices, self.sliding_window_size.is_some()),
            ("rope_indices", &self.rope_indices, self.rope_local_base_freq.is_some()),
            ("rotated_indices", &self.rotated_indices, self.rotated_width() > 0),
            ("expert_indices", &self.expert_indices, self.mlp_class_name == MlpClass::Mixture),
        ] {
            let Some(indices) = indices else { continue };
            let fits = indices.len() >= self.n_layer && indices.iter().all(|has| *has <= 1);
            let (found, blocks) = (format!("{indices:?}"), self.n_layer);
            check(field, fits, &found, format!("0 or 1 for each of n_layer = {blocks} blocks"))?;
            let other = match field {
                "sliding_window_indices" => "sliding_window_size with it",
                "rope_indices" => "rope_local_base_freq with it",
                "rotated_indices" => "rotary_percentage above 0 with it",
                _ => "mlp_class_name LLaMAMoE with it",
            };
            check(field, needed, &found, other.into())?;
        }
        self.check_parts()
    }

    fn check_norms(&self) -> Result<(), DecoderError> {
        let weights = self.norm_affine || !self.norm_add_unit_offset;
        check("norm_affine", weights, &self.norm_affine, "true with norm_add_unit_offset".into())?;
        let usual = self.norm_qk_type == NormQkType::Default;
        let found = serde_json::to_string(&self.norm_qk_type).unwrap_or_default().replace('"', "");
        check("norm_qk_type", usual || self.norm_qk, &found, "norm_qk with it".into())?;
        let apart = self.norm_qk_type != NormQkType::PerHead || (self.norm_affine && !self.norm_add_unit_offset);
        check("norm_qk_type", apart, &found, "norm_affine, and no norm_add_unit_offset, with it".into())?;
        let after = self.norm_1 && self.norm_2 && !self.parallel_residual;
        let expected = "norm_1 and norm_2, and no parallel_residual, with it".into();
        check("norm_after_sum", after || !self.norm_after_sum, &self.norm_after_sum, expected)
    }

    fn check_rotations(&self) -> Result<(), DecoderError> {
        if let Some(RopeAdjustments { low_freq_factor, high_freq_factor, original_max_seq_len, .. }) =
            self.rope_adjustments
        {
            let of_all = [low_freq_factor.is_some(), high_freq_factor.is_some(), original_max_seq_len.is_some()];
            let fits = match (low_freq_factor, high_freq_factor, original_max_seq_len) {
                (Some(low), Some(high), Some(length)) => low < high && length > 0,
                _ => of_all == [false; 3],
            };
            let expected = "low_freq_factor below high_freq_factor and original_max_seq_len, or factor alone".into();
            let found = serde_json::to_string(&self.rope_adjustments).unwrap_or_default();
            check("rope_adjustments", fits, &found, expected)?;
        }
        let Some(scaling) = &self.rope_scaling else { return Ok(()) };
        let found = serde_json::to_string(scaling).unwrap_or_default();
        let apart = self.rope_adjustments.is_none();
        check("rope_scaling", apart, &found, "rope_adjustments to be absent with it".into())?;
        let fault = scaling.fault(self.rope_base, self.rotated_width());
        check("rope_scaling", fault.is_none(), &found, fault.clone().unwrap_or_default())
    }

    fn check_parts(&self) -> Result<(), DecoderError> {
        let both = !(self.scale_embeddings && self.embedding_multiplier.is_some());
        check("scale_embeddings", both, &self.scale_embeddings, "false with embedding_multiplier".into())?;
        let rows = self.learned_positions.unwrap_or(0);
        check("learned_positions", rows <= 1 << 10, &rows, format!("0 to {}", 1 << 10))?;
        let both = self.attention_multiplier.is_none() || self.attention_scores_scalar.is_none();
        let scale = self.attention_multiplier.unwrap_or(0.0);
        check("attention_multiplier", both, &scale, "attention_scores_scalar to be absent with it".into())?;
        let found = self.mlp_activation.map_or("", Activation::name);
        let plain = self.mlp_activation.is_none() || self.mlp_class_name == MlpClass::GptNeox;
        check("mlp_activation", plain, &found, "mlp_class_name GptNeoxMLP with it".into())?;
        let (experts, each) = (self.n_expert, self.n_expert_per_token);
        let mixture = self.mlp_class_name == MlpClass::Mixture;
        for (field, value) in [("bias", self.bias), ("mlp_bias", self.mlp_bias)] {
            check(field, !(mixture && value), &value, "false with LLaMAMoE, whose experts have none".into())?;
        }
        let width = self.moe_intermediate_size.unwrap_or(0);
        let only = "mlp_class_name LLaMAMoE with it";
        check("moe_intermediate_size", mixture || width == 0, &width, only.into())?;
        let of_all = self.expert_shares_of_all;
        check("expert_shares_of_all", mixture || !of_all, &of_all, only.into())?;
        let limit = if mixture { 1..=1 << 10 } else { 0..=0 };
        let which = if mixture { "1 to 1024 for LLaMAMoE" } else { "0, as mlp_class_name is not LLaMAMoE" };
        check("n_expert", limit.contains(&experts), &experts, which.into())?;
        let blocks = self.n_layer;
        let of_all = format!("at most {MOST_EXPERTS} in all of n_layer = {blocks} blocks");
        check("n_expert", experts * blocks <= MOST_EXPERTS, &experts, of_all)?;
        let chosen = each <= experts && (each > 0) == mixture;
        check("n_expert_per_token", chosen, &each, format!("at most n_expert, {experts}, and not 0 of them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every precondition of a configuration is tripped, and names its field.
    #[test]
    fn what_cannot_be_is_refused_with_its_field() {
        DecoderConfig::named("nano", 256).unwrap().validate().unwrap();
        for (assignments, expected) in [
            (&["n_layer=0"][..], "n_layer is 0, expected 1 to 1024"),
            (&["norm_eps=0"], "norm_eps is 0, expected a number above 0"),
            (&["rope_base=-1"], "rope_base is -1, expected a number above 0"),
            (&["n_embd=66"], "n_embd is 66, expected a multiple of n_head, 4, or head_size to be given"),
            (&["n_query_groups=3"], "n_query_groups is 3, expected a divisor of n_head, 4"),
            (&["rotary_percentage=1.5"], "rotary_percentage is 1.5, expected a number from 0 to 1"),
            (&["rotary_percentage=0.2"], "rotary_percentage is 0.2, expected an even number of the head's 16 values"),
            (&["shared_attention_norm=true"], "shared_attention_norm is true, expected parallel_residual with it"),
            (
                &["norm_class_name=LayerNorm", "norm_add_unit_offset=true"],
                "norm_add_unit_offset is true, expected norm_class_name RMSNorm with it",
            ),
            (
                &["tie_embeddings=true", "lm_head_bias=true"],
                "lm_head_bias is true, expected tie_embeddings to be false with it",
            ),
            (
                &["sliding_window_size=4", "sliding_window_indices=[1]"],
                "sliding_window_indices is [1], expected 0 or 1 for each of n_layer = 2 blocks",
            ),
            (
                &["sliding_window_indices=[1,0]"],
                "sliding_window_indices is [1, 0], expected sliding_window_size with it",
            ),
            (&["rope_adjustments={\"factor\": 2, \"low_freq_factor\": 1}"], "rope_adjustments is {\"factor\":2.0,"),
            (&["embedding_width=0"], "embedding_width is 0, expected 1 to 65536"),
            (&["residual_multiplier=0"], "residual_multiplier is 0, expected a number above 0"),
            (&["rope_indices=[1,0]"], "rope_indices is [1, 0], expected rope_local_base_freq with it"),
            (
                &["rope_local_base_freq=100", "rope_indices=[2,0]"],
                "rope_indices is [2, 0], expected 0 or 1 for each of n_layer = 2 blocks",
            ),
            (
                &["rotary_percentage=0", "rotated_indices=[1,0]"],
                "rotated_indices is [1, 0], expected rotary_percentage above 0 with it",
            ),
            (&["expert_indices=[1,0]"], "expert_indices is [1, 0], expected mlp_class_name LLaMAMoE with it"),
            (
                &["norm_affine=false", "norm_add_unit_offset=true"],
                "norm_affine is false, expected true with norm_add_unit_offset",
            ),
            (&["norm_qk_type=olmo2"], "norm_qk_type is olmo2, expected norm_qk with it"),
            (
                &["norm_qk=true", "norm_qk_type=per_head", "norm_affine=false"],
                "norm_qk_type is per_head, expected norm_affine, and no norm_add_unit_offset, with it",
            ),
            (
                &["norm_after_sum=true", "norm_1=false"],
                "norm_after_sum is true, expected norm_1 and norm_2, and no parallel_residual, with it",
            ),
            (
                &["scale_embeddings=true", "embedding_multiplier=2"],
                "scale_embeddings is true, expected false with embedding_multiplier",
            ),
            (&["learned_positions=5000"], "learned_positions is 5000, expected 0 to 1024"),
            (
                &["attention_multiplier=2", "attention_scores_scalar=4"],
                "attention_multiplier is 2, expected attention_scores_scalar to be absent with it",
            ),
            (&["mlp_activation=relu"], "mlp_activation is relu, expected mlp_class_name GptNeoxMLP with it"),
            (&["moe_intermediate_size=8"], "moe_intermediate_size is 8, expected mlp_class_name LLaMAMoE with it"),
            (&["expert_shares_of_all=true"], "expert_shares_of_all is true, expected mlp_class_name LLaMAMoE with it"),
            (
                &[
                    "rope_adjustments={\"factor\": 2}",
                    "rope_scaling={\"rope_type\": \"dynamic\", \"factor\": 2, \"original_max_seq_len\": 8}",
                ],
                "rope_scaling is {\"rope_type\":\"dynamic\",\"factor\":2.0,\"original_max_seq_len\":8}, expected \
                 rope_adjustments to be absent with it",
            ),
            (
                &["rope_scaling={\"rope_type\": \"dynamic\", \"factor\": 0.5, \"original_max_seq_len\": 8}"],
                "rope_scaling is {\"rope_type\":\"dynamic\",\"factor\":0.5,\"original_max_seq_len\":8}, expected factor \
                 of 1 or more",
            ),
            (
                &[
                    "rope_scaling={\"rope_type\": \"yarn\", \"factor\": 2, \"original_max_seq_len\": 8, \"beta_slow\": 64}",
                ],
                "rope_scaling is {\"rope_type\":\"yarn\",\"factor\":2.0,",
            ),
            (
                &["rope_scaling={\"rope_type\": \"longrope\", \"original_max_seq_len\": 8, \"short_factor\": [1], \
                   \"long_factor\": [1]}"],
                "rope_scaling is {\"rope_type\":\"longrope\",",
            ),
            (&["n_expert=2"], "n_expert is 2, expected 0, as mlp_class_name is not LLaMAMoE"),
            (
                &["mlp_class_name=LLaMAMoE", "n_expert=2", "n_expert_per_token=1", "bias=true"],
                "bias is true, expected false with LLaMAMoE, whose experts have none",
            ),
            (
                &["mlp_class_name=LLaMAMoE", "n_layer=1024", "n_expert=1024", "n_expert_per_token=2"],
                "n_expert is 1024, expected at most 65536 in all of n_layer = 1024 blocks",
            ),
            (
                &["mlp_class_name=LLaMAMoE", "n_expert=2", "n_expert_per_token=3"],
                "n_expert_per_token is 3, expected at most n_expert, 2, and not 0 of them",
            ),
        ] {
            let mut config = DecoderConfig::named("nano", 256).unwrap();
            assignments.iter().for_each(|assignment| config.set(assignment).unwrap());
            let message = config.validate().unwrap_err().to_string();
            assert!(message.starts_with(expected), "{assignments:?}: {message}");
        }
    }
}
