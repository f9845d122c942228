"""One training step of GPT-2 124M in PyTorch, for bench_gpt2: what its compiled program is beside.

    gpt2.py TOKENS BATCH SEQ f32|bf16 RANKS THREADS CLIP

The model, its initialisation and AdamW are those of samples/gpt2 without dropout; attention is
scaled_dot_product_attention, AdamW the fused one, bf16 is autocast, ranks are DistributedDataParallel
over gloo with BATCH samples each. TOKENS is a token file of llm.c. Prints a line after every step, for ever.
"""

import math
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

VOCAB, CONTEXT, DIM, LAYERS, HEADS = 50257, 1024, 768, 12, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, s, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, s, DIM))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, DIM), nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(DIM)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if "proj" in name or "down" in name else 0.02)
            elif "bias" in name:
                nn.init.zeros_(p)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), labels.reshape(-1))


def run(rank, tokens, batch, seq, dtype, ranks, threads, clip):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if ranks > 1:
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
    with open(tokens, "rb") as f:
        f.seek(1024)
        text = torch.frombuffer(bytearray(f.read()), dtype=torch.uint16).long()
    model = GPT2()
    params = list(model.parameters())
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    adamw = torch.optim.AdamW(params, lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    step = 0
    while True:
        at = (step * ranks + rank) * batch * (seq + 1) % (len(text) - batch * (seq + 1))
        rows = text[at : at + batch * (seq + 1)].view(batch, seq + 1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(rows[:, :-1], rows[:, 1:])
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(params, 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        step += 1
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    tokens, batch, seq, dtype, ranks, threads, clip = sys.argv[1:]
    args = (tokens, int(batch), int(seq), dtype, int(ranks), int(threads), clip == "1")
    if int(ranks) == 1:
        run(0, *args)
    else:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", str(20000 + os.getpid() % 20000))
        mp.spawn(run, args, nprocs=int(ranks))
