"""Exact metrics of embeddings as fractions: in blocks, on the embeddings' device."""

from isosphere.metrics.clustering import clustering_metrics, kmeans, nmi, pairwise_f1
from isosphere.metrics.distractors import identification
from isosphere.metrics.faces import verification
from isosphere.metrics.probe import knn_accuracy, linear_probe
from isosphere.metrics.ranking import cmc_at_k, mean_average_precision, ranking_metrics
from isosphere.metrics.retrieval import map_at_r, r_precision, recall_at_k, retrieval_metrics, singletons

__all__ = [
    "clustering_metrics",
    "cmc_at_k",
    "identification",
    "kmeans",
    "knn_accuracy",
    "linear_probe",
    "map_at_r",
    "mean_average_precision",
    "nmi",
    "pairwise_f1",
    "r_precision",
    "ranking_metrics",
    "recall_at_k",
    "retrieval_metrics",
    "singletons",
    "verification",
]
