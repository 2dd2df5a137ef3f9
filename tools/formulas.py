r"""The equation, cost and limits of every public loss, constraint and metric, by name, for the reference pages.

Notation: N embeddings f of length D, u = f / |f|, S the cosines, d = 2 - 2 S squared chords, y the labels. P_i and N_i
are the positives and negatives of i. C classes have weights w, c their cosines with an embedding. M are references.
"""

from typing import NamedTuple


class Formula(NamedTuple):
    """What a reference page says of one public name."""

    equation: str  # LaTeX
    where: str  # what its letters are, in Markdown with formulas
    cost: str
    limits: str
    function: str = ""  # the same as a pure function, in isosphere.functional or by its full path


class Family(NamedTuple):
    """A reference page: a few names that have their shapes in common."""

    title: str
    about: str
    module: str  # where the names are imported from
    shapes: str
    formulas: dict[str, Formula]


PAIRS = "Time $O(N^2 D)$. Memory: one block of $2^{22}$ cosines, never $N \\times N$."
SORTED = "Time $O(N^2 (D + \\log N))$. Memory: one block of $2^{22}$ cosines."
RANKED = "Time $O(N^2 (D + P))$ for $P$ positives of an anchor. Memory: one block of $2^{22}$ comparisons."
HEAD = "Time $O(N C D)$. Memory: at most four blocks of $2^{24}$ logits, and the weights."
CENTERS = "Time $O(N C K D)$ for $K$ centers a class. Memory: one block of cosines, of $D$ rows at least."
MARGIN = "A few operations on $N$ cosines."
NORMS = "Time and memory $O(N D)$. Under torch.distributed one all-reduce of two numbers."
BOTH = "A term needs a positive and a negative. A batch with one kind alone has loss 0, and a warning on a CPU."
LABELED = "Labels are whole numbers from 0 to $C - 1$. The optimizer must be given its parameters."
TRUE = "It acts on the cosine $c$ of the true class, with the angle $\\theta$. The scale belongs to the classifier."
NEIGHBORS = "Time $O(N M D)$. Memory: one block of cosines."
LONE = "A query without a positive counts as wrong; `singletons` says how many there are."

PAIR_LOSSES = Family(
    "Pair losses",
    "They compare the embeddings of a batch with each other. Several images of a class must be in the batch.",
    "isosphere.losses",
    "`embeddings` (N, D), raw; `labels` (N,), whole numbers; the result is a scalar",
    {
        "TripletLoss": Formula(
            r"\frac{1}{|T|} \sum_{(a, p, n) \in T} \left[ d_{ap} - d_{an} + m \right]_+",
            "$T$ are all triplets of the batch, $m$ is the `margin`. Triplets with loss 0 count in the mean.",
            SORTED + " No triplet is ever formed.",
            BOTH,
            "triplet",
        ),
        "SemiHardTripletLoss": Formula(
            r"\frac{1}{|P|} \sum_{(a, p) \in P} \left[ d_{ap} - d_{a n(a, p)} + m \right]_+",
            "$P$ are all positive pairs. $n(a, p)$ is the nearest negative with $d_{an} > d_{ap}$, or else the "
            "farthest of all.",
            SORTED,
            BOTH,
            "semihard_triplet",
        ),
        "NPairLoss": Formula(
            r"\frac{1}{|P|} \sum_{(a, p) \in P} \log \left( 1 + \sum_{n \in N_a} e^{s (S_{an} - S_{ap})} \right)",
            '$s$ is the `scale`. With `negatives="positives"` the first two samples of a class are its one pair, and '
            'the negatives are the other classes\' positives. With `"all"` every pair and every negative counts.',
            PAIRS,
            BOTH,
            "npair",
        ),
        "MultiSimilarityLoss": Formula(
            r"\frac{1}{N} \sum_i \left[ \frac{1}{\alpha} \log \left( 1 + \sum_{j \in P'_i} e^{-\alpha (S_{ij} - "
            r"\lambda)} \right) + \frac{1}{\beta} \log \left( 1 + \sum_{k \in N'_i} e^{\beta (S_{ik} - \lambda)} "
            r"\right) \right]",
            r"$\lambda$ is `base`. Pairs are mined: $P'_i$ has the positives with "
            r"$S_{ij} < \max_k S_{ik} + \epsilon$, and $N'_i$ the negatives with $S_{ik} > \min_j S_{ij} - \epsilon$.",
            PAIRS,
            BOTH,
            "multi_similarity",
        ),
        "ContrastiveLoss": Formula(
            r"\frac{1}{N} \sum_i \left( \sum_{j \in P_i} \left[ m_+ - S_{ij} \right]_+ + \sum_{k \in N_i} \left[ "
            r"S_{ik} - m_- \right]_+ \right)",
            "$m_+$ is `positive_margin` and $m_-$ is `negative_margin`, both cosines.",
            PAIRS,
            "None of its own: a batch with positives alone, or negatives alone, has a loss too.",
            "contrastive",
        ),
        "SupConLoss": Formula(
            r"-\frac{1}{A} \sum_i \frac{1}{|P_i|} \sum_{j \in P_i} \log \frac{e^{S_{ij} / \tau}}{\sum_{k \neq i} "
            r"e^{S_{ik} / \tau}}",
            r"$\tau$ is the `temperature`. $A$ counts the anchors that have both a positive and a negative.",
            PAIRS,
            BOTH,
            "supcon",
        ),
        "NTXentLoss": Formula(
            r"-\frac{w}{N} \sum_i \log \frac{e^{S_{i t(i)} / \tau}}{\sum_{k \neq i} e^{S_{ik} / \tau}}",
            r"$t(i)$ is the other view of the image, $\tau$ the `temperature`, $w$ the `weight`.",
            PAIRS,
            "Exactly two rows for each label. Others are an error on a CPU and NaN on a GPU.",
            "nt_xent",
        ),
        "CircleLoss": Formula(
            r"\frac{1}{A} \sum_i \log \left( 1 + \sum_{k \in N_i} e^{s [S_{ik} + m]_+ (S_{ik} - m)} \sum_{j \in P_i} "
            r"e^{-s [1 + m - S_{ij}]_+ (S_{ij} - 1 + m)} \right)",
            "$m$ is the `margin`, $s$ the `scale`. The brackets are weights, constant for the gradient.",
            PAIRS,
            BOTH,
            "circle",
        ),
        "LiftedStructureLoss": Formula(
            r"\frac{1}{A} \sum_i \left[ \log \sum_{j \in P_i} e^{\sqrt{d_{ij}}} + \log \sum_{k \in N_i} e^{m - "
            r"\sqrt{d_{ik}}} \right]_+",
            "$m$ is the `margin`. It is the form of Hermans et al., with all positives of an anchor.",
            PAIRS,
            BOTH,
            "lifted_structure",
        ),
        "RankedListLoss": Formula(
            r"\frac{1}{A} \sum_i \frac{1}{|P'_i|} \sum_{j \in P'_i} \left( \sqrt{d_{ij}} - b + m \right) + \sum_{k \in "
            r"N'_i} \frac{w_{ik}}{\sum_l w_{il}} \left( b - \sqrt{d_{ik}} \right)",
            r"$b$ is the `boundary`, $m$ the `margin`. $P'_i$ and $N'_i$ have the terms above 0. $w_{ik} = e^{T (b - "
            r"\sqrt{d_{ik}})}$ is constant for the gradient; $T$ is the `temperature`.",
            PAIRS,
            BOTH,
            "ranked_list",
        ),
        "TupletMarginLoss": Formula(
            r"\frac{1}{|P|} \sum_{(a, p) \in P} \log \left( 1 + \sum_{n \in N_a} e^{s (\cos \theta_{an} - "
            r"\cos(\theta_{ap} - m))} \right)",
            r"$m$ is the `margin` in radians, $s$ the `scale`, $\theta$ are angles.",
            PAIRS,
            BOTH,
            "tuplet_margin",
        ),
        "DecoupledContrastiveLoss": Formula(
            r"\frac{1}{|P|} \sum_{(a, p) \in P} \log \sum_{n \in N_a} e^{S_{an} / \tau} - \frac{S_{ap}}{\tau}",
            r"$\tau$ is the `temperature`. The positive is not in the sum, so the loss may be below 0.",
            PAIRS,
            BOTH,
            "decoupled_contrastive",
        ),
        "SmoothAPLoss": Formula(
            r"\frac{1}{A} \sum_i 1 - \frac{1}{|P_i|} \sum_{j \in P_i} \frac{1 + \sum_{l \in P_i} \sigma((S_{il} - "
            r"S_{ij}) / \tau)}{1 + \sum_{l \neq i} \sigma((S_{il} - S_{ij}) / \tau)}",
            r"$\tau$ is the `temperature`. No image is compared with itself, so $l \neq j$.",
            RANKED,
            BOTH,
            "smooth_ap",
        ),
        "RecallSurrogateLoss": Formula(
            r"\frac{1}{A} \sum_i 1 - \frac{1}{K |P_i|} \sum_k \sum_{j \in P_i} \sigma \left( \frac{k - r_{ij}}{\tau'} "
            r"\right), \quad r_{ij} = 1 + \sum_l \sigma \left( \frac{S_{il} - S_{ij}}{\tau} \right)",
            r"$k$ goes through the $K$ numbers in `ks`. $\tau$ is the `temperature`, $\tau'$ the `rank_temperature`.",
            RANKED,
            BOTH,
            "recall_surrogate",
        ),
        "CrossBatchMemory": Formula(
            r"L\left( \{f_1, \dots, f_N\} \text{ against } \{f_1, \dots, f_N, m_1, \dots, m_M\} \right)",
            "$L$ is any other pair loss here, $m$ are the last $M$ embeddings before the batch, held constant.",
            "Time $O(N (N + M) D)$. Memory: the $M$ embeddings, and one block of cosines.",
            "Not for NT-Xent. It reads no value of the device, and its shapes change until the memory is full.",
        ),
    },
)

TWO_SETS = Family(
    "Losses of two sets",
    "They compare queries with keys, such as images with captions. Row i of both belongs together.",
    "isosphere.losses",
    "`queries` (N, D) and `keys` (N, D), raw; the result is a scalar",
    {
        "InfoNCELoss": Formula(
            r"\frac{1}{2 N} \sum_i - \log \frac{e^{S_{ii} / \tau}}{\sum_k e^{S_{ik} / \tau}} - \log \frac{e^{S_{ii} / "
            r"\tau}}{\sum_k e^{S_{ki} / \tau}}",
            r"$S_{ik}$ is the cosine of query $i$ and key $k$, $\tau$ the `temperature`. With `symmetric=False` it is "
            "the first term alone, over $N$. `negatives` are more keys in the first term.",
            "Time $O(N^2 D)$, twice if symmetric. Memory: one block of $2^{22}$ cosines. A `mask` takes $N \\times M$.",
            "Under DDP gather both sets first. A learned temperature belongs to the optimizer.",
            "info_nce",
        ),
        "SigLIPLoss": Formula(
            r"\frac{-1}{N} \sum_i \sum_k \log \sigma \left( z_{ik} (s S_{ik} + b) \right)",
            r"$z_{ik}$ is 1 for $i = k$, else -1. $s$ is the `scale`, $b$ the `bias`; both learn.",
            "Time $O(N^2 D)$. Memory: one block of $2^{22}$ cosines.",
            "Under DDP gather both sets first.",
            "siglip",
        ),
    },
)

CLASS_LOSSES = Family(
    "Class losses",
    "They compare embeddings with learned class weights. Any batch will do; the classes are known before training.",
    "isosphere.losses",
    "`embeddings` (N, D), raw; `labels` (N,), from 0 to C - 1; class weights (C, D); the result is a scalar",
    {
        "CosineClassifier": Formula(
            r"-\frac{1}{N} \sum_i \log \frac{e^{s \, m(c_{i y_i})}}{e^{s \, m(c_{i y_i})} + \sum_{k \neq y_i} "
            r"e^{s c_{ik}}}",
            "$c_{ik}$ is the cosine of embedding $i$ and class $k$, $s$ the `scale`, $m$ the `margin` (below).",
            HEAD,
            LABELED,
            "cosine_softmax",
        ),
        "NormFace": Formula("m(c) = c", TRUE, MARGIN, "It is no loss by itself: `CosineClassifier` takes it."),
        "CosFace": Formula("m(c) = c - m", TRUE, MARGIN, "The margin is from 0 to 1."),
        "ArcFace": Formula(
            r"m(c) = \begin{cases} \cos(\theta + m) & \theta \leq \pi - m \\ c - m \sin m & \text{beyond} \end{cases}",
            TRUE,
            MARGIN,
            r"The margin is in radians, from 0 to $\pi / 2$.",
        ),
        "SphereFace": Formula(
            r"m(c) = (-1)^k \cos(m \theta) - 2 k, \quad k = \left\lfloor m \theta / \pi \right\rfloor",
            TRUE,
            MARGIN,
            "The margin is a whole number from 1 to 10.",
        ),
        "LinearClassifier": Formula(
            r"-\frac{1}{N} \sum_i \log \frac{e^{f_i \cdot w_{y_i}}}{\sum_k e^{f_i \cdot w_k}}",
            "Nothing is normalized, so norms matter, and SEC changes what the loss can say.",
            HEAD,
            LABELED,
        ),
        "ShardedClassifier": Formula(
            r"-\frac{1}{N} \sum_i \log \frac{e^{s \, m(c_{i y_i})}}{e^{s \, m(c_{i y_i})} + \sum_{k \in K, k \neq "
            r"y_i} e^{s c_{ik}}}",
            "As `CosineClassifier`. $K$ are all classes, or with `rate` below 1 those that this step drew.",
            "As `CosineClassifier`, divided by the number of ranks. `rate` below 1 divides it again.",
            "Every rank gives the batch of all ranks. With `rate` below 1 it needs `RowSGD` and no CUDA graph.",
        ),
        "SubCenterArcFace": Formula(
            r"\frac{1}{N} \sum_i - \log \frac{e^{s \cos(\theta_{i y_i} + m)}}{e^{s \cos(\theta_{i y_i} + m)} + \sum_{c "
            r"\neq y_i} e^{s \cos \theta_{i c}}}, \quad \cos \theta_{i c} = \max_k u_i^T w_{c k}",
            "$w_{c k}$ are the centers of class $c$, $m$ the `margin`, $s$ the `scale`.",
            CENTERS,
            LABELED,
            "several_centers",
        ),
        "SoftTripleLoss": Formula(
            r"\frac{1}{N} \sum_i - \log \frac{e^{s (S_{i y_i} - m)}}{e^{s (S_{i y_i} - m)} + \sum_{c \neq y_i} e^{s "
            r"S_{i c}}} + \frac{\tau}{C K (K - 1)} \sum_c \sum_{k < l} \lVert w_{c k} - w_{c l} \rVert",
            r"$S_{i c}$ is the mean of $u_i^T w_{c k}$ over $k$, weighed by their softmax over the `temperature`. "
            r"$\tau$ is `spread`.",
            CENTERS,
            LABELED,
            "several_centers",
        ),
        "SphereFace2": Formula(
            r"\frac{1}{N s} \sum_i \lambda \log \left( 1 + e^{-s (g(c_{i y_i}) - m) - b} \right) + (1 - \lambda) "
            r"\sum_{c \neq y_i} \log \left( 1 + e^{s (g(c_{i c}) + m) + b} \right)",
            r"$g(c) = 2 ((c + 1) / 2)^t - 1$. $\lambda$ is `balance`, $t$ is `power`, $b$ the learned `bias`.",
            HEAD,
            LABELED,
            "binary_softplus",
        ),
        "MagFace": Formula(
            r"\frac{1}{N} \sum_i - \log \frac{e^{s \cos(\theta_i + m(|f_i|))}}{e^{s \cos(\theta_i + m(|f_i|))} + "
            r"\sum_{c \neq y_i} e^{s c_{i c}}} + \frac{\lambda}{N} \sum_i \frac{|f_i|}{u^2} + \frac{1}{|f_i|}",
            r"$m$ grows linearly from `margins[0]` to `margins[1]` as the norm does over `norms`; $u$ is `norms[1]`. "
            r"$\lambda$ is `weight`. Norms are clamped to `norms`.",
            HEAD,
            LABELED + " It uses norms, so SEC works against it.",
        ),
        "AdaFace": Formula(
            r"\frac{1}{N} \sum_i - \log \frac{e^{s t_i}}{e^{s t_i} + \sum_{c \neq y_i} e^{s c_{i c}}}, "
            r"\quad t_i = \cos(\theta_i - m z_i) - m (1 + z_i)",
            r"$z_i$ is `sharpness` times $|f_i|$ less the running mean, over the running deviation, within -1 and 1. "
            "It is constant for the gradient.",
            HEAD,
            LABELED + " It uses norms, so SEC works against it.",
        ),
        "ProxyAnchorLoss": Formula(
            r"\frac{1}{|C^+|} \sum_{k \in C^+} \log \left( 1 + \sum_{y_i = k} e^{-s (c_{ik} - m)} \right) + "
            r"\frac{1}{C} \sum_k \log \left( 1 + \sum_{y_i \neq k} e^{s (c_{ik} + m)} \right)",
            "$C^+$ are the classes in the batch, $s$ the `scale`, $m$ the `margin`.",
            "Time $O(N C D)$. Memory: one block of $2^{22}$ cosines, and the proxies.",
            LABELED,
            "proxy_anchor",
        ),
    },
)

CONSTRAINTS = Family(
    "Constraints",
    "What is done about the norms. [The forms of SEC](../concepts/forms.md) compares them.",
    "isosphere.losses",
    "`embeddings` (N, D), raw; the result is a scalar, already multiplied by `eta`",
    {
        "SEC": Formula(
            r"\frac{\eta}{N} \sum_i \left( |f_i| - \mu \right)^2, \quad \text{or relative:} \quad \frac{\eta}{N} "
            r"\sum_i \left( \frac{|f_i|}{\mu} - 1 \right)^2",
            r"$\mu$ is the `radius`. It is detached: no gradient goes through the mean.",
            NORMS,
            "The model must not normalize its output; then it warns. `relative=True` refuses radius 0.",
            "norm_penalty",
        ),
        "l2_reg": Formula(
            r"\frac{\eta}{N} \sum_i |f_i|^2", "It is `SEC(eta, radius=0.0)`.", NORMS, "It pulls all norms to 0."
        ),
        "LogNorms": Formula(
            r"\frac{\eta}{N} \sum_i \left( \log |f_i| - \frac{1}{N} \sum_j \log |f_j| \right)^2",
            "A common factor of all embeddings changes nothing.",
            NORMS,
            "A zero vector has no logarithm and is left out.",
            "isosphere.losses.log_norms.log_norm_penalty",
        ),
        "DecoupledSEC": Formula(
            r"W \leftarrow W - \text{lr} \cdot \eta \, \frac{\partial}{\partial W} \frac{1}{N} \sum_i \left( |f_i| - "
            r"\mu \right)^2",
            "$W$ are the weights of the last layer. The step comes after the optimizer's own.",
            NORMS + " One more backward pass through the last layer.",
            "It needs the loop of this package, or one that calls `through_optimizer` and `after_step`.",
        ),
        "AdaptiveSEC": Formula(
            r"\eta \, \frac{\overline{|\partial L / \partial W|}}{\overline{|\partial P / \partial W|}} \, P, "
            r"\quad P = \frac{1}{N} \sum_i \left( |f_i| - \mu \right)^2",
            "$W$ are the weights of the last layer, $L$ is the criterion. Bars are running means over steps.",
            NORMS + " Two more backward passes through the last layer.",
            "It needs the loop of this package, or one that calls `through_optimizer`.",
        ),
        "CutInitialization": Formula(
            r"W_0 \leftarrow W_0 / c",
            "$W_0$ are the first weights and biases of the last layer. It acts once, and the penalty is 0.",
            "Nothing in training.",
            "It needs the loop of this package, or one that calls `start`.",
        ),
        "L2SP": Formula(
            r"\frac{\eta}{2} \left| w - w_0 \right|^2",
            "$w$ are the weights of the backbone, and $w_0$ the first ones.",
            "A copy of the backbone's weights.",
            "It needs the loop of this package, or one that calls `start` and `through_optimizer`.",
        ),
        "BalancedDirections": Formula(
            r"\frac{\partial L}{\partial f_i} = \frac{1}{\mu} \left( I - u_i u_i^T \right) \frac{\partial L}{\partial "
            r"u_i}",
            r"$\mu$ is the batch's mean norm. The plain gradient has $1 / |f_i|$ in its place.",
            "Time and memory $O(N D)$, without communication.",
            "The criterion gets `sec.inputs(embeddings)`. The penalty itself is 0.",
            "balanced_directions",
        ),
        "ShuffledPulls": Formula(
            r"\frac{2 \eta}{N} \sum_i \left( |f_{\pi(i)}| - \mu \right) |f_i|",
            r"A control. $\pi(i)$ is the row half a batch away, and the bracket is detached.",
            "Time and memory $O(N D)$.",
            "No remedy: it is as strong as SEC and makes nothing more even.",
        ),
        "ScaleCourse": Formula(
            r"W \leftarrow \frac{r(t)}{\mu} W",
            r"A control. $r(t)$ is the mean norm that `course` wants at this part of training, $W$ the last layer.",
            "Time $O(N D)$, and one pass over the last layer.",
            "It needs the loop of this package, or one that calls `after_step`.",
        ),
    },
)

METRICS = Family(
    "Metrics",
    "Exact, in blocks, on the device of the embeddings. They take tensors, arrays and lists; results are fractions.",
    "isosphere.metrics",
    "`embeddings` (N, D); `labels` (N,), whole numbers or words; references (M, D) and (M,), by default the queries",
    {
        "recall_at_k": Formula(
            r"\frac{1}{N} \sum_i \left[ 1 + \left| \{ n \in N_i : S_{in} \geq \max_{p \in P_i} S_{ip} \} \right| "
            r"\leq k \right]",
            "The rank of the first positive is at most $k$. Ties count against the query.",
            NEIGHBORS,
            LONE,
        ),
        "map_at_r": Formula(
            r"\frac{1}{N} \sum_i \frac{1}{R_i} \sum_{r = 1}^{R_i} \text{precision}_i(r) \cdot [\text{the r-th is a "
            r"positive}]",
            "$R_i$ is the number of positives of query $i$.",
            NEIGHBORS,
            LONE,
        ),
        "r_precision": Formula(
            r"\frac{1}{N} \sum_i \frac{1}{R_i} \left| P_i \cap \text{nearest}_i(R_i) \right|",
            "$R_i$ is the number of positives of query $i$.",
            NEIGHBORS,
            LONE,
        ),
        "retrieval_metrics": Formula(
            r"\text{Recall@K}, \; \text{MAP@R}, \; \text{R-precision}",
            "The three above, from one pass over the cosines.",
            NEIGHBORS,
            LONE,
        ),
        "cmc_at_k": Formula(
            r"\frac{1}{|Q|} \sum_{i \in Q} \left[ 1 + \left| \{ n \in N_i : S_{in} \geq \max_{p \in P_i} S_{ip} \} "
            r"\right| \leq k \right]",
            "$Q$ are the queries with a positive. $P_i$ has the query's class, but not its group.",
            NEIGHBORS,
            "Queries without a positive do not count, as in the protocol of Market-1501.",
        ),
        "mean_average_precision": Formula(
            r"\frac{1}{|Q|} \sum_{i \in Q} \frac{1}{|P_i|} \sum_{p \in P_i} \text{precision}_i(\text{rank of } p)",
            "As above, over the whole ranking.",
            "Time $O(N M (D + \\log R))$ for $R$ positives, in blocks.",
            "Queries without a positive do not count.",
        ),
        "ranking_metrics": Formula(
            r"\text{CMC}, \; \text{mAP}",
            "The two above, from one pass over the cosines.",
            NEIGHBORS,
            "Queries without a positive do not count.",
        ),
        "singletons": Formula(
            r"\left| \{ i : P_i = \emptyset \} \right|", "Queries that no answer can serve.", "Time $O(N)$.", "None."
        ),
        "kmeans": Formula(
            r"\min_{z, a} \sum_i \left| x_i - z_{a(i)} \right|^2",
            "$z$ are the centroids, $a(i)$ is the cluster of point $i$.",
            "Time $O(N k D)$ an iteration, at most 300 of them.",
            "A local minimum: the seed decides. Give it directions to cluster by cosine.",
        ),
        "clustering_metrics": Formula(
            r"\text{NMI}(a, y), \; F_1(a, y)",
            "$a$ is k-means on directions, with one cluster for each class.",
            "That of `kmeans`.",
            "One k-means: its seed moves the numbers.",
        ),
        "nmi": Formula(
            r"\frac{2 \, I(a; y)}{H(a) + H(y)}",
            "$I$ is the mutual information and $H$ the entropy.",
            "Time $O(N \\log N)$.",
            "Two trivial partitions agree: 1.",
        ),
        "pairwise_f1": Formula(
            r"\frac{2 \, n_{ay}}{n_a + n_y}",
            "$n_{ay}$ counts pairs that share cluster and class, $n_a$ and $n_y$ those that share one of them.",
            "Time $O(N \\log N)$.",
            "1 where neither partition has a pair.",
        ),
        "verification": Formula(
            r"\frac{1}{K} \sum_k \text{accuracy}_k(t_k), \quad t_k = \underset{t}{\text{argmax}} \sum_{l \neq k} "
            r"\text{accuracy}_l(t)",
            "Each of $K$ folds is judged with the threshold that is best on the others.",
            "Time $O(P (D + K \\log P))$ for $P$ pairs.",
            "Two folds at least. The other folds together must hold pairs of both kinds.",
        ),
        "identification": Formula(
            r"\frac{1}{Q} \sum_{(i, p)} \left[ \left| \{ d : S_{id} \geq S_{ip} \} \right| < k \right]",
            "$Q$ pairs of probe and mate; $d$ are the first $n$ distractors of one permutation.",
            "Time $O(N M D)$ for $M$ distractors. Memory: one block.",
            "A probe without a mate counts nowhere. Ties count against the model.",
        ),
        "linear_probe": Formula(
            r"\min_{W, b} -\frac{1}{N} \sum_i \log \text{softmax}(W x_i + b)_{y_i}",
            "$x$ are frozen features, as they are. Several learning rates are trained at once.",
            "Time $O(N C D)$ an epoch and rate.",
            "The best rate depends on the scale of the features.",
        ),
        "knn_accuracy": Formula(
            r"\hat{y} = \underset{c}{\text{argmax}} \sum_{j \in \text{nearest}(k), \, y_j = c} e^{S_{ij} / \tau}",
            r"$\tau$ is the `temperature`.",
            NEIGHBORS,
            "`k` is 200 by default: give less where there are few images.",
        ),
    },
)

FAMILIES = {
    "pairs": PAIR_LOSSES, "two_sets": TWO_SETS, "classes": CLASS_LOSSES, "constraints": CONSTRAINTS, "metrics": METRICS,
}  # fmt: skip
