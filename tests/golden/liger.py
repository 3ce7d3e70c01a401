"""Operators of Liger-Kernel that torch does not have, as plain formulas, for operators.py. Sums of 16 bits are f32."""

import math

import torch
import torch.nn.functional as F


def wide(tensor):
    """In the type that sums are accumulated in."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def relu_squared(input):
    return torch.relu(input).square()


def dyt(input, alpha, gamma, beta=None):
    out = torch.tanh(wide(alpha) * wide(input)) * wide(gamma)
    return (out if beta is None else out + wide(beta)).to(input.dtype)


def poly_norm(input, weight, bias, eps=1e-6):
    x, w = wide(input), wide(weight)
    norm = lambda u: u * torch.rsqrt(u.square().mean(-1, keepdim=True) + eps)
    return (w[0] * norm(x**3) + w[1] * norm(x**2) + w[2] * norm(x) + wide(bias)).to(input.dtype)


def grouped_linear(input, weights, groups, turned=False):
    out = torch.zeros(len(input), weights[0].shape[1 if turned else 0], dtype=wide(input).dtype)
    for group, weight in enumerate(weights):
        matrix = wide(weight) if turned else wide(weight).T
        out = torch.where((groups == group).unsqueeze(-1), wide(input) @ matrix, out)
    return out.to(input.dtype)


def grouped_outer(left, right, groups, count):
    own = [(groups == group).nonzero().flatten() for group in range(count)]
    return tuple((wide(left)[rows].T @ wide(right)[rows]).to(left.dtype) for rows in own)


def experts_mlp(input, gates, ups, downs, experts, shares):
    out = torch.zeros_like(wide(input))
    for expert, matrices in enumerate(zip(gates, ups, downs)):
        gate, up, down = map(wide, matrices)
        rows = (experts == expert).any(-1).nonzero().flatten()
        share = torch.where(experts == expert, wide(shares), 0).sum(-1, keepdim=True)[rows]
        x = wide(input)[rows]
        out = out.index_add(0, rows, F.silu(x @ gate.T) * (x @ up.T) @ down.T * share)
    return out.to(input.dtype)


def sparsemax(input, dim=-1):
    x = wide(input)
    if x.ndim == 0:
        return torch.ones_like(input) + 0 * input
    x = x.movedim(dim, -1)
    ordered = x.sort(-1, descending=True).values
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    support = 1 + ranks * ordered > ordered.cumsum(-1)
    count = support.sum(-1, keepdim=True)
    tau = (torch.where(support, ordered, 0).sum(-1, keepdim=True) - 1) / count
    return (x - tau).clamp(min=0).movedim(-1, dim).to(input.dtype)


def counted(terms, shift_labels, ignore_index):
    """Terms without the rows that do not count, and the number of those that do."""
    if shift_labels is None:
        return terms, terms.shape[0]
    keep = shift_labels != ignore_index
    return torch.where(keep.unsqueeze(-1), terms, 0), max(int(keep.sum()), 1)


def tvd(p, q, shift_labels=None, reduction="batchmean", ignore_index=-100):
    terms, rows = counted((wide(p) - wide(q)).abs() / 2, shift_labels, ignore_index)
    divisors = {"sum": 1, "batchmean": rows, "mean": rows * terms.shape[1]}
    return terms if reduction == "none" else terms.sum() / divisors[reduction]


def jsd(input, target, shift_labels=None, beta=0.5, ignore_index=-100):
    x, y = wide(input), wide(target)
    # A probability of zero has the term zero.
    divergence = lambda p, q: torch.where(p == -torch.inf, 0, p.exp() * (p - q))
    if beta in (0.0, 1.0):
        terms = divergence(y, x) if beta == 0.0 else divergence(x, y)
    else:
        mixture = torch.log(beta * y.exp() + (1 - beta) * x.exp())
        terms = beta * divergence(y, mixture) + (1 - beta) * divergence(x, mixture)
    terms, rows = counted(terms, shift_labels, ignore_index)
    return terms.sum() / rows


def fused_linear_jsd(
    student_input, student_weight, teacher_input, teacher_weight,
    shift_labels=None, jsd_beta=0.5, ignore_index=-100, temperature=1.0,
):  # fmt: skip
    log_p = lambda input, weight: torch.log_softmax(input @ weight.T / temperature, -1)
    student, teacher = log_p(student_input, student_weight), log_p(teacher_input, teacher_weight)
    if len(student) == 0:
        return student.sum() + teacher.sum()
    return jsd(student, teacher, shift_labels, jsd_beta, ignore_index)


def tokens(input, weight, target, bias, ignore_index, temperature=1.0):
    """The log-probability of each token, zero where it does not count, and where it counts."""
    logits = input @ weight.T
    logits = (logits if bias is None else logits + bias) / temperature
    keep = target != ignore_index
    labels = torch.where(keep, target, 0).unsqueeze(-1)
    return torch.log_softmax(logits, -1).gather(-1, labels).squeeze(-1) * keep, keep


def sequences(log_p, keep, average):
    return log_p.sum(-1) / keep.sum(-1).clamp(min=1) if average else log_p.sum(-1)


def pairs(loss, log_p, keep, average, alpha):
    """The results of a loss over pairs; `alpha` is None without the likelihood of the preferred tokens."""
    half = log_p.shape[0] // 2
    chosen, rejected = sequences(log_p, keep, average).split(half)
    mean = loss(chosen, rejected).sum() / half
    nll = -log_p[:half].sum() / keep[:half].sum().clamp(min=1)
    return (mean if alpha is None else mean + alpha * nll), chosen, rejected


def smoothed(margin, smoothing):
    return -(1 - smoothing) * F.logsigmoid(margin) - smoothing * F.logsigmoid(-margin)


def cpo(
    input, weight, target, bias=None, ignore_index=-100, beta=0.1, alpha=1.0, label_smoothing=0.0,
    compute_nll_loss=True, average_log_prob=False,
):  # fmt: skip
    log_p, keep = tokens(input, weight, target, bias, ignore_index)
    loss = lambda chosen, rejected: smoothed(beta * (chosen - rejected), label_smoothing)
    return pairs(loss, log_p, keep, average_log_prob, alpha if compute_nll_loss else None)


def simpo(
    input, weight, target, bias=None, ignore_index=-100, beta=0.1, alpha=1.0, label_smoothing=0.0,
    compute_nll_loss=False, gamma=0.5,
):  # fmt: skip
    log_p, keep = tokens(input, weight, target, bias, ignore_index)
    loss = lambda chosen, rejected: smoothed(beta * (chosen - rejected) - gamma, label_smoothing)
    return pairs(loss, log_p, keep, True, alpha if compute_nll_loss else None)


def orpo(input, weight, target, bias=None, ignore_index=-100, beta=0.1, compute_nll_loss=True):
    log_p, keep = tokens(input, weight, target, bias, ignore_index)

    def loss(chosen, rejected):
        chosen, rejected = chosen.clamp(max=-1 / 1024), rejected.clamp(max=-1 / 1024)
        odds = (chosen - rejected) - (torch.log1p(-chosen.exp()) - torch.log1p(-rejected.exp()))
        return -beta * F.logsigmoid(odds)

    return pairs(loss, log_p, keep, True, 1.0 if compute_nll_loss else None)


def dpo(
    input, weight, target, bias=None, ref_input=None, ref_weight=None, ref_bias=None, ignore_index=-100, beta=0.1,
    compute_nll_loss=False, average_log_prob=False, loss_type="sigmoid", label_smoothing=0.0, discopop_tau=0.05,
    alpha=1.0,
):  # fmt: skip
    log_p, keep = tokens(input, weight, target, bias, ignore_index)
    reference = [0.0, 0.0]
    if ref_input is not None:
        of_reference, _ = tokens(ref_input, ref_weight, target, ref_bias, ignore_index)
        reference = sequences(of_reference, keep, average_log_prob).split(log_p.shape[0] // 2)
    e, log, share = label_smoothing, F.logsigmoid, torch.sigmoid

    def loss(chosen, rejected):
        a, b = chosen - reference[0], rejected - reference[1]
        d = beta * (a - b)
        m = share(d / discopop_tau)
        match loss_type:
            case "sigmoid":
                return -(1 - e) * log(d) - e * log(-d)
            case "hinge":
                return torch.relu(1 - d)
            case "exo_pair":
                d_epsilon = torch.tensor(e, dtype=d.dtype)
                return share(d) * (log(d) - torch.log1p(-d_epsilon)) + share(-d) * (log(-d) - torch.log(d_epsilon))
            case "nca_pair":
                return -log(beta * a) - 0.5 * log(-beta * a) - 0.5 * log(-beta * b)
            case "robust":
                return (-(1 - e) * log(d) + e * log(-d)) / (1 - 2 * e)
            case "bco_pair":
                return -log(beta * a) - log(-beta * b)
            case "sppo_hard":
                return (a - 0.5 / beta) ** 2 + (b + 0.5 / beta) ** 2
            case "apo_zero":
                return 1 - share(beta * a) + share(beta * b)
            case "apo_down":
                return share(beta * a) + 1 - share(d)
            case "discopop":
                return -log(d) * (1 - m) + torch.exp(-d) * m
        raise ValueError(loss_type)

    return pairs(loss, log_p, keep, average_log_prob, alpha if compute_nll_loss else None)


def kto(
    input, weight, target, preference_labels, bias=None, ref_input=None, ref_weight=None, ref_bias=None, kl=None,
    ignore_index=-100, beta=0.1, average_log_prob=False,
):  # fmt: skip
    log_p = sequences(*tokens(input, weight, target, bias, ignore_index), average_log_prob)
    ratios = log_p
    if ref_input is not None:
        ratios = log_p - sequences(*tokens(ref_input, ref_weight, target, ref_bias, ignore_index), average_log_prob)
    signs = torch.where(preference_labels, 1, -1)
    losses = 1 - torch.sigmoid(beta * (ratios - (0 if kl is None else kl)) * signs)
    return losses.sum() / log_p.shape[0], log_p


def grpo(
    input, weight, selected_token_ids, attention_mask, advantages, old_per_token_logps, bias=None,
    ref_per_token_logps=None, beta=0.04, epsilon_low=0.2, epsilon_high=0.2, loss_type="dapo",
    max_completion_length=None, importance_sampling_level="token", temperature=1.0,
    sapo_temperature_pos=1.0, sapo_temperature_neg=1.05, vespo_k_pos=2.0, vespo_lambda_pos=3.0, vespo_k_neg=3.0,
    vespo_lambda_neg=2.0,
):  # fmt: skip
    mask = attention_mask.to(input.dtype)
    log_p, _ = tokens(input, weight, selected_token_ids, bias, -1, temperature)
    log_ratio, lengths = log_p - old_per_token_logps, mask.sum(-1).clamp(min=1)
    if importance_sampling_level == "sequence":
        log_ratio = ((log_ratio * mask).sum(-1) / lengths).unsqueeze(-1)
    ratio, advantage = log_ratio.exp(), advantages.unsqueeze(1)
    by_sign = lambda holds, yes, no: torch.where(holds, torch.full_like(advantage, yes), torch.full_like(advantage, no))
    losses = -torch.min(ratio * advantage, ratio.clamp(1 - epsilon_low, 1 + epsilon_high) * advantage)
    if loss_type == "sapo":
        sharpness = by_sign(advantage > 0, sapo_temperature_pos, sapo_temperature_neg)
        losses = -4 / sharpness * torch.sigmoid(sharpness * (ratio - 1)) * advantage
    if loss_type == "cispo":
        losses = -ratio.clamp(max=epsilon_high).detach() * advantage * log_p
    if loss_type == "vespo":
        log_weight = (log_ratio.clamp(-20, 20) * mask).sum(-1, keepdim=True).clamp(math.log(1e-8), 20)
        power = by_sign(advantage >= 0, vespo_k_pos, vespo_k_neg)
        rate = by_sign(advantage >= 0, vespo_lambda_pos, vespo_lambda_neg)
        losses = -(rate + power * log_weight - rate * log_weight.exp()).exp().detach() * advantage * log_p
    if ref_per_token_logps is not None and beta != 0:
        d = ref_per_token_logps - log_p
        losses = losses + beta * (d.exp() - d - 1)
    losses = losses * mask
    match loss_type:
        case "grpo" | "sapo":
            loss = (losses.sum(-1) / lengths).mean()
        case "bnpo" | "dapo" | "cispo" | "vespo":
            loss = losses.sum() / mask.sum().clamp(min=1)
        case "dr_grpo":
            loss = losses.sum() / (mask.shape[0] * max_completion_length)
        case "luspo":
            loss = (losses * lengths.unsqueeze(1)).mean()
        case _:
            raise ValueError(loss_type)
    return loss, log_p * mask


LOSSES = {"cpo": cpo, "simpo": simpo, "orpo": orpo, "dpo": dpo, "kto": kto, "grpo": grpo, "jsd": fused_linear_jsd}
# Products of 16 bits are rounded where the operator says, which a formula does not: see `reason_to_skip`.
FUSED = {f"fused_linear_{name}": function for name, function in LOSSES.items()}
FORMULAS = {
    "relu_squared": relu_squared,
    "grouped_linear": grouped_linear,
    "grouped_outer": grouped_outer,
    "experts_mlp": experts_mlp,
    "dyt": dyt,
    "poly_norm": poly_norm,
    "sparsemax": sparsemax,
    "tvd": tvd,
    "jsd": jsd,
    **FUSED,
}
