"""TorchScript files that others ship, taken as they are from their packages."""
import importlib.util
import os
import shutil


def export(out):
    # Found, not imported: importing it wants torchaudio.
    package = importlib.util.find_spec("silero_vad").submodule_search_locations[0]
    shutil.copyfile(os.path.join(package, "data", "silero_vad.jit"), os.path.join(out, "silero_vad.pt"))
