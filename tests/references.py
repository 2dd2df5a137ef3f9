"""Loop transcriptions of the losses' formulas, one term at a time, differentiated by autograd: slow and plain."""

import math

import torch
from torch import Tensor


def circle(degrees: list[float]) -> Tensor:
    """Unit vectors at these angles, (N,) -> (N, 2), float64."""
    return torch.tensor([[math.cos(math.radians(a)), math.sin(math.radians(a))] for a in degrees], dtype=torch.float64)


def cosine(left: Tensor, right: Tensor) -> Tensor:
    return (left @ right) / (left @ left).sqrt() / (right @ right).sqrt()


def chord(left: Tensor, right: Tensor) -> Tensor:
    """The squared chord of two directions."""
    difference = left / (left @ left).sqrt() - right / (right @ right).sqrt()
    return difference @ difference


def alike(labels: Tensor, i: int, j: int) -> bool:
    """Whether two samples have the same label (N,), or share one of several (N, C)."""
    if labels.ndim == 1:
        return bool(labels[i] == labels[j])
    return any(labels[i, c] and labels[j, c] for c in range(labels.shape[1]))


def positives(labels: Tensor, i: int) -> list[int]:
    return [j for j in range(len(labels)) if j != i and alike(labels, i, j)]


def negatives(labels: Tensor, i: int) -> list[int]:
    return [j for j in range(len(labels)) if j != i and not alike(labels, i, j)]


def pair_masks(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Positive and negative pairs, two masks (N, N)."""
    pairs = torch.zeros(2, len(labels), len(labels), dtype=torch.bool)
    for i in range(len(labels)):
        pairs[0, i, positives(labels, i)] = True
        pairs[1, i, negatives(labels, i)] = True
    return pairs[0], pairs[1]


def mean(terms: list[Tensor], f: Tensor) -> Tensor:
    return sum(terms) / len(terms) if terms else 0 * f.sum()


def triplet(f: Tensor, y: Tensor, margin: float = 1.0) -> Tensor:
    terms = []
    for a in range(len(f)):
        for p in positives(y, a):
            for n in negatives(y, a):
                terms.append((chord(f[a], f[p]) - chord(f[a], f[n]) + margin).relu())
    return mean(terms, f)


def semihard_triplet(f: Tensor, y: Tensor, margin: float = 0.2) -> Tensor:
    terms = []
    for a in range(len(f)):
        for p in positives(y, a):
            away = [chord(f[a], f[n]) for n in negatives(y, a)]
            if not away:
                continue
            near = chord(f[a], f[p])
            outside = [d for d in away if d > near]
            terms.append((near - (min(outside) if outside else max(away)) + margin).relu())
    return mean(terms, f)


def npair(f: Tensor, y: Tensor, scale: float = 25.0, negatives: str = "positives") -> Tensor:
    if negatives == "all":
        return npair_all(f, y, scale)
    pairs = []
    for label in y.unique():
        members = [i for i in range(len(y)) if y[i] == label]
        if len(members) > 1:
            pairs.append((members[0], members[1]))
    terms = []
    for anchor, positive in pairs:
        logits = [scale * cosine(f[anchor], f[other]) for _, other in pairs]
        terms.append(torch.stack(logits).exp().sum().log() - scale * cosine(f[anchor], f[positive]))
    return mean(terms, f)


def npair_all(f: Tensor, y: Tensor, scale: float) -> Tensor:
    terms = []
    for a in range(len(f)):
        for p in positives(y, a):
            gaps = [torch.exp(scale * (cosine(f[a], f[n]) - cosine(f[a], f[p]))) for n in negatives(y, a)]
            terms.append(torch.log(1 + sum(gaps)) if gaps else 0 * f.sum())
    return mean(terms, f)


def multi_similarity(
    f: Tensor, y: Tensor, alpha: float = 2.0, beta: float = 40.0, base: float = 0.5, epsilon: float = 0.1
) -> Tensor:
    total = 0 * f.sum()
    for a in range(len(f)):
        near = [cosine(f[a], f[p]) for p in positives(y, a)]
        far = [cosine(f[a], f[n]) for n in negatives(y, a)]
        if not near or not far:
            continue
        kept_near = [s for s in near if s - epsilon < max(far)]
        kept_far = [s for s in far if s + epsilon > min(near)]
        if not kept_near or not kept_far:
            continue
        total = total + torch.log(1 + sum(torch.exp(-alpha * (s - base)) for s in kept_near)) / alpha
        total = total + torch.log(1 + sum(torch.exp(beta * (s - base)) for s in kept_far)) / beta
    return total / len(f)


def contrastive(f: Tensor, y: Tensor, positive_margin: float = 1.0, negative_margin: float = 0.5) -> Tensor:
    total = 0 * f.sum()
    for a in range(len(f)):
        for p in positives(y, a):
            total = total + (positive_margin - cosine(f[a], f[p])).relu()
        for n in negatives(y, a):
            total = total + (cosine(f[a], f[n]) - negative_margin).relu()
    return total / len(f)


def supcon(f: Tensor, y: Tensor, temperature: float = 0.1) -> Tensor:
    terms = []
    for a in range(len(f)):
        if not positives(y, a) or not negatives(y, a):
            continue
        everyone = sum(torch.exp(cosine(f[a], f[j]) / temperature) for j in range(len(f)) if j != a)
        own = [cosine(f[a], f[p]) / temperature - torch.log(everyone) for p in positives(y, a)]
        terms.append(-sum(own) / len(own))
    return mean(terms, f)


def nt_xent(f: Tensor, y: Tensor, temperature: float = 0.5) -> Tensor:
    terms = []
    for a in range(len(f)):
        (p,) = positives(y, a)
        everyone = sum(torch.exp(cosine(f[a], f[j]) / temperature) for j in range(len(f)) if j != a)
        terms.append(-torch.log(torch.exp(cosine(f[a], f[p]) / temperature) / everyone))
    return mean(terms, f)


def cosine_softmax(f: Tensor, y: Tensor, weights: Tensor, margin: str, m: float, scale: float = 64.0) -> Tensor:
    """The margins by angles, with arccos, as the papers write them."""
    terms = []
    for i in range(len(f)):
        logits = []
        for j in range(len(weights)):
            s = cosine(f[i], weights[j])
            logits.append(scale * (with_margin(s, margin, m) if j == y[i] else s))
        shifted = torch.stack(logits) - max(logits).detach()
        terms.append(shifted.exp().sum().log() - shifted[y[i]])
    return mean(terms, f)


def with_margin(s: Tensor, margin: str, m: float) -> Tensor:
    angle = torch.arccos(s)
    if margin == "cosface":
        return s - m
    if margin == "arcface":
        return torch.cos(angle + m) if angle <= math.pi - m else s - m * math.sin(m)
    if margin == "sphereface":
        k = math.floor(m * angle.item() / math.pi)
        return (-1) ** k * torch.cos(m * angle) - 2 * k
    return s


def linear_softmax(f: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    terms = []
    for i in range(len(f)):
        logits = torch.stack([f[i] @ w for w in weights])
        terms.append(-torch.log(logits[y[i]].exp() / logits.exp().sum()))
    return mean(terms, f)


def proxy_anchor(f: Tensor, y: Tensor, proxies: Tensor, margin: float = 0.1, scale: float = 32.0) -> Tensor:
    pull, push, with_positives = [], [], 0
    for c in range(len(proxies)):
        near = [torch.exp(-scale * (cosine(f[i], proxies[c]) - margin)) for i in range(len(f)) if y[i] == c]
        far = [torch.exp(scale * (cosine(f[i], proxies[c]) + margin)) for i in range(len(f)) if y[i] != c]
        with_positives += bool(near)
        pull += [torch.log(1 + sum(near))] if near else []
        push += [torch.log(1 + sum(far))] if far else []
    return sum(pull) / with_positives + sum(push) / len(proxies)


def norm_penalty(f: Tensor, radius: float | None = None, relative: bool = False) -> Tensor:
    lengths = [(row @ row).sqrt() for row in f]
    radius = sum(length.detach() for length in lengths) / len(lengths) if radius is None else radius
    return sum((length / radius - 1) ** 2 if relative else (length - radius) ** 2 for length in lengths) / len(f)


def log_norm_penalty(f: Tensor) -> Tensor:
    logs = [(row @ row).sqrt().log() for row in f]
    mean = sum(logs) / len(logs)
    return sum((log - mean) ** 2 for log in logs) / len(f)


def circle_loss(f: Tensor, y: Tensor, margin: float = 0.4, scale: float = 80.0) -> Tensor:
    terms = []
    for a in range(len(f)):
        near = [cosine(f[a], f[p]) for p in positives(y, a)]
        far = [cosine(f[a], f[n]) for n in negatives(y, a)]
        if not near or not far:
            continue
        pull = torch.stack([-scale * (1 + margin - s.detach()).relu() * (s - (1 - margin)) for s in near])
        push = torch.stack([scale * (s.detach() + margin).relu() * (s - margin) for s in far])
        terms.append(torch.nn.functional.softplus(pull.logsumexp(0) + push.logsumexp(0)))
    return mean(terms, f)


def lifted_structure(f: Tensor, y: Tensor, margin: float = 1.0) -> Tensor:
    terms = []
    for a in range(len(f)):
        near = [chord(f[a], f[p]).sqrt().exp() for p in positives(y, a)]
        far = [(margin - chord(f[a], f[n]).sqrt()).exp() for n in negatives(y, a)]
        if near and far:
            terms.append((sum(near).log() + sum(far).log()).relu())
    return mean(terms, f)


def ranked_list(f: Tensor, y: Tensor, margin: float = 0.4, boundary: float = 1.2, temperature: float = 10.0) -> Tensor:
    terms = []
    for a in range(len(f)):
        if not positives(y, a) or not negatives(y, a):
            continue
        near = [chord(f[a], f[p]).sqrt() - (boundary - margin) for p in positives(y, a)]
        far = [boundary - chord(f[a], f[n]).sqrt() for n in negatives(y, a)]
        near, far = [d for d in near if d > 0], [d for d in far if d > 0]
        weights = [torch.exp(temperature * d.detach()) for d in far]
        pull = sum(near) / len(near) if near else 0 * f.sum()
        push = sum(w * d for w, d in zip(weights, far, strict=True)) / sum(weights) if far else 0 * f.sum()
        terms.append(pull + push)
    return mean(terms, f)


def tuplet_margin(f: Tensor, y: Tensor, margin: float = 0.1, scale: float = 64.0) -> Tensor:
    terms = []
    for a in range(len(f)):
        for p in positives(y, a):
            turned = torch.cos(torch.arccos(cosine(f[a], f[p])) - margin)
            gaps = [torch.exp(scale * (cosine(f[a], f[n]) - turned)) for n in negatives(y, a)]
            if gaps:
                terms.append(torch.log(1 + sum(gaps)))
    return mean(terms, f)


def decoupled_contrastive(f: Tensor, y: Tensor, temperature: float = 0.1) -> Tensor:
    terms = []
    for a in range(len(f)):
        for p in positives(y, a):
            others = [torch.exp(cosine(f[a], f[n]) / temperature) for n in negatives(y, a)]
            if others:
                terms.append(sum(others).log() - cosine(f[a], f[p]) / temperature)
    return mean(terms, f)


def ranks_of_positives(f: Tensor, y: Tensor, a: int, temperature: float) -> list[tuple[Tensor, Tensor]]:
    """For each positive of an anchor its smoothed rank among the positives, and among all."""
    found = []
    for p in positives(y, a):
        above = [
            (alike(y, a, q), torch.sigmoid((cosine(f[a], f[q]) - cosine(f[a], f[p])) / temperature))
            for q in range(len(f))
            if q not in (a, p)
        ]
        found.append((1 + sum(s for same, s in above if same), 1 + sum(s for _, s in above)))
    return found


def smooth_ap(f: Tensor, y: Tensor, temperature: float = 0.01) -> Tensor:
    terms = []
    for a in range(len(f)):
        ranks = ranks_of_positives(f, y, a, temperature)
        if ranks and negatives(y, a):
            terms.append(1 - sum(among / total for among, total in ranks) / len(ranks))
    return mean(terms, f)


def recall_surrogate(
    f: Tensor,
    y: Tensor,
    ks: tuple[int, ...] = (1, 2, 4, 8, 16),
    temperature: float = 0.01,
    rank_temperature: float = 1.0,
) -> Tensor:
    terms = []
    for a in range(len(f)):
        ranks = ranks_of_positives(f, y, a, temperature)
        if ranks and negatives(y, a):
            found = [torch.sigmoid((k - total) / rank_temperature) for k in ks for _, total in ranks]
            terms.append(1 - sum(found) / len(found))
    return mean(terms, f)


def several_centers(f: Tensor, y: Tensor, centers: Tensor, pool, margin: float, scale: float, turned=None) -> Tensor:
    """Sub-center ArcFace for the pool `max`; `turned` replaces the margin on the angle."""
    turned = turned or (lambda s: with_margin(s, "arcface", margin))
    terms = []
    for i in range(len(f)):
        pooled = [pool([cosine(f[i], center) for center in its]) for its in centers]
        logits = torch.stack([scale * (turned(s) if c == y[i] else s) for c, s in enumerate(pooled)])
        terms.append(logits.logsumexp(0) - logits[y[i]])
    return mean(terms, f)


def soft_triple(f: Tensor, y: Tensor, centers: Tensor, margin: float, scale: float) -> Tensor:
    def soft(cosines: list[Tensor]) -> Tensor:
        weights = [(s / 0.1).exp() for s in cosines]
        return sum(w * s for w, s in zip(weights, cosines, strict=True)) / sum(weights)

    value, each = several_centers(f, y, centers, soft, 0.0, scale, lambda s: s - margin), centers.shape[1]
    apart = [(2 + 1e-5 - 2 * cosine(c[s], c[t])).sqrt() for c in centers for t in range(each) for s in range(t)]
    return value + 0.2 * sum(apart) / (len(centers) * each * (each - 1)) if len(f) else 0 * f.sum()


def sphereface2(f: Tensor, y: Tensor, weights: Tensor, bias: Tensor, margin: float, scale: float) -> Tensor:
    terms = []
    for i in range(len(f)):
        term = 0
        for c in range(len(weights)):
            g = 2 * ((cosine(f[i], weights[c]) + 1) / 2) ** 3 - 1
            if c == y[i]:
                term = term + 0.7 / scale * torch.log(1 + torch.exp(-scale * (g - margin) - bias))
            else:
                term = term + 0.3 / scale * torch.log(1 + torch.exp(scale * (g + margin) + bias))
        terms.append(term)
    return mean(terms, f)


def own_margins(f: Tensor, y: Tensor, weights: Tensor, scale: float, target) -> Tensor:
    """Softmax of cosines whose true one is target(angle, norm)."""
    terms = []
    for i in range(len(f)):
        cosines = [cosine(f[i], w) for w in weights]
        true = target(torch.arccos(cosines[y[i]]), (f[i] @ f[i]).sqrt())
        logits = torch.stack([scale * (true if c == y[i] else s) for c, s in enumerate(cosines)])
        terms.append(logits.logsumexp(0) - logits[y[i]])
    return mean(terms, f)


def magface(f, y, weights, margins, lengths, scale: float, weight: float) -> Tensor:
    (low, high), (least, most) = margins, lengths

    def target(angle: Tensor, norm: Tensor) -> Tensor:
        margin = low + (high - low) * (norm.clamp(least, most) - least) / (most - least)
        return torch.cos(angle + margin) if angle < math.pi - margin else torch.cos(angle)

    clamped = [(row @ row).sqrt().clamp(least, most) for row in f]
    return own_margins(f, y, weights, scale, target) + weight * mean([a / most**2 + 1 / a for a in clamped], f)


def adaface(f, y, weights, margin: float, spread: float, scale: float, average: float, deviation: float) -> Tensor:
    def target(angle: Tensor, norm: Tensor) -> Tensor:
        place = ((norm.detach() - average) / (deviation + 1e-3) * spread).clamp(-1, 1)
        return torch.cos((angle - margin * place).clamp(1e-3, math.pi - 1e-3)) - margin * (1 + place)

    return own_margins(f, y, weights, scale, target)
