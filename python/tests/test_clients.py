"""Models of packages that nobody here wrote, unmodified: results, gradients and training steps are those of eager
PyTorch, and nothing is left to it. A package that is not installed is skipped."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import models  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def package(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
GROUPED = dict(num_key_value_heads=2, head_dim=8)


def of_transformers(model, config, **settings):
    def make():
        T = package("transformers")
        return getattr(T, model)(getattr(T, config)(**settings))

    return make


def of_torchvision(name, **settings):
    def make():
        package("torchvision")
        from torchvision.models import resnet, vision_transformer

        if name == "ResNet":
            return resnet.ResNet(resnet.Bottleneck, [1, 2, 1, 1], **settings)
        return getattr(vision_transformer, name)(**settings)

    return make


def of_litgpt(name, **settings):
    def make():
        package("litgpt")
        from litgpt.config import Config
        from litgpt.model import GPT

        sizes = dict(n_layer=2, n_embd=32, n_head=4, head_size=8, padded_vocab_size=64, vocab_size=64, block_size=64,
                     intermediate_size=64)
        return GPT(Config.from_name(name, **sizes, **settings))

    return make


def ids():
    return torch.randint(3, 64, (2, 12), generator=torch.Generator().manual_seed(1))


def labelled(module, ids):
    """As transformers' trainers call a model of language."""
    return module(input_ids=ids, labels=ids).loss


def padded(module, ids):
    """With a mask of what is padding."""
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    return module(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss


def following(module, ids):
    logits = module(ids[:, :-1])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def pictures():
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def classified(module, pictures):
    out = module(pictures)
    out = out.logits if hasattr(out, "logits") else out
    return F.cross_entropy(out, torch.arange(len(pictures)) % 2)


GPT2 = of_transformers("GPT2LMHeadModel", "GPT2Config", vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64,
                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2)
LLAMA = of_transformers("LlamaForCausalLM", "LlamaConfig", **SMALL, num_key_value_heads=2)
BERT = of_transformers("BertForMaskedLM", "BertConfig", **SMALL, hidden_dropout_prob=0.0,
                       attention_probs_dropout_prob=0.0)
VIT = of_transformers("ViTForImageClassification", "ViTConfig", hidden_size=32, num_hidden_layers=2,
                      num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8,
                      hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
RESNET = of_torchvision("ResNet", num_classes=10, width_per_group=16)

#: The model, how it is called, with what, and how many nodes or graph breaks are left to PyTorch.
CLIENTS = {
    "transformers GPT-2": (GPT2, labelled, ids, 0),
    "transformers GPT-2, padded": (GPT2, padded, ids, 0),
    "transformers Llama": (LLAMA, labelled, ids, 0),
    "transformers Llama, padded": (LLAMA, padded, ids, 0),
    "transformers Qwen3": (of_transformers("Qwen3ForCausalLM", "Qwen3Config", **SMALL, **GROUPED), labelled, ids, 0),
    "transformers Gemma-3": (of_transformers("Gemma3ForCausalLM", "Gemma3TextConfig", **SMALL, **GROUPED,
                                             sliding_window=8), labelled, ids, 0),
    "transformers OLMo-2": (of_transformers("Olmo2ForCausalLM", "Olmo2Config", **SMALL, num_key_value_heads=2),
                            labelled, ids, 0),
    "transformers BERT": (BERT, labelled, ids, 0),
    "transformers BERT, padded": (BERT, padded, ids, 0),
    "transformers ViT": (VIT, classified, pictures, 0),
    "torchvision ResNet": (RESNET, classified, pictures, 0),
    "torchvision ViT": (of_torchvision("VisionTransformer", image_size=32, patch_size=8, num_layers=2, num_heads=4,
                                       hidden_dim=32, mlp_dim=64, num_classes=10), classified, pictures, 0),
    "litgpt TinyLlama": (of_litgpt("tiny-llama-1.1b", n_query_groups=2), following, ids, 0),
    "litgpt Llama-3.1": (of_litgpt("Llama-3.1-8B", n_query_groups=2), following, ids, 0),
    "litgpt Gemma-2": (of_litgpt("Gemma-2-2b", n_query_groups=2, sliding_window_size=8), following, ids, 0),
    "litgpt Qwen2.5": (of_litgpt("Qwen2.5-0.5B", n_query_groups=2), following, ids, 0),
    "nanoGPT": (models.Gpt, lambda module, ids: module(ids % 32, ids % 32)[1], ids, 0),
}


def close(found, expected, name, tolerance=1e-5):
    """Equal within a part of the largest element: a gradient may be zero but for roundings."""
    assert found.dtype == expected.dtype and found.shape == expected.shape, name
    bound = tolerance * (1e-2 + expected.abs().max().item() if expected.numel() else 1.0)
    difference = (found.double() - expected.double()).abs().max().item() if expected.numel() else 0.0
    assert difference <= bound, f"{name}: {difference} > {bound}"


@pytest.mark.parametrize("how", ["jit", "torch.compile"])
@pytest.mark.parametrize("client", CLIENTS)
def test_forward_and_backward(client, how, capsys):
    make, loss, batch, breaks = CLIENTS[client]
    module = make()
    expected = copy.deepcopy(module)
    before = len(fulgurite.torch.breaks())
    torch._dynamo.utils.counters.clear()
    compiled = fulgurite.jit(module) if how == "jit" else torch.compile(module, backend="fulgurite")
    value = loss(compiled, batch())
    value.backward()
    reference = loss(expected, batch())
    reference.backward()
    if how == "jit":
        left = compiled.breaks
    else:
        # A message to a log breaks a graph of `torch.compile` with any backend.
        reasons = torch._dynamo.utils.counters["graph_break"]
        left = [each for each in reasons if not each.startswith("logging.Logger")]
        left += fulgurite.torch.breaks()[before:]
    with capsys.disabled():
        print(f"\n{client}, {how}: {len(left)} breaks", *left, sep="\n  ", end="")
    # Normalization over few pictures makes roundings large.
    tolerance = 2e-4 if "ResNet" in client else 1e-5
    close(value.detach(), reference.detach(), "loss", tolerance)
    for (name, ours), (_, theirs) in zip(module.named_parameters(), expected.named_parameters()):
        assert (ours.grad is None) == (theirs.grad is None), name
        if ours.grad is not None:
            close(ours.grad, theirs.grad, name, tolerance)
    for (name, ours), (_, theirs) in zip(module.named_buffers(), expected.named_buffers()):
        close(ours, theirs, name, tolerance)
    assert len(left) == breaks, left


@pytest.mark.parametrize("client", ["transformers GPT-2", "transformers Llama, padded", "transformers BERT",
                                    "transformers ViT", "torchvision ResNet", "litgpt TinyLlama"])
def test_training_steps(client):
    make, loss, batch, _ = CLIENTS[client]
    module = make()
    theirs = copy.deepcopy(module)
    ours, other = (torch.optim.SGD(each.parameters(), lr=1e-2, momentum=0.9) for each in (module, theirs))
    step = fulgurite.train_step(module, loss, ours, max_norm=1.0)
    tolerance = 1e-3 if "ResNet" in client else 1e-5
    for _ in range(5):
        other.zero_grad()
        expected = loss(theirs, batch())
        expected.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        other.step()
        close(step(batch()), expected.detach(), "loss", tolerance)
    assert step.compiles == 1
    for (name, found), (_, value) in zip(module.named_parameters(), theirs.named_parameters()):
        close(found.detach(), value.detach(), name, tolerance)


def test_a_cache_of_keys_and_values():
    """Prompt and tokens one by one, as `generate` calls a model: the cache is an argument and a result."""
    package("transformers")
    module = LLAMA().eval()
    compiled = fulgurite.jit(module)
    prompt = ids()
    with torch.no_grad():
        ours = compiled(input_ids=prompt, use_cache=True)
        theirs = module(input_ids=prompt, use_cache=True)
        for _ in range(2):
            close(ours.logits, theirs.logits, "logits")
            token = theirs.logits[:, -1:].argmax(-1)
            ours = compiled(input_ids=token, past_key_values=ours.past_key_values, use_cache=True)
            theirs = module(input_ids=token, past_key_values=theirs.past_key_values, use_cache=True)
        close(ours.logits, theirs.logits, "logits")
    assert not compiled.breaks
