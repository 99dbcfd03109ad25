// The first export: constant data, so that a host can read it before any code of the library runs.
#include <ATen/core/ivalue.h>
#include <c10/core/TensorImpl.h>
#include <fsdp2/plugin.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/headeronly/version.h>
#ifdef USE_C10D_NCCL
#include <cuda.h>
#include <nccl.h>
#endif

#define FSDP2_TEXT(value) FSDP2_TEXT_OF(value)
#define FSDP2_TEXT_OF(value) #value

extern "C" __attribute__((visibility("default"))) constinit const fsdp2_manifest fsdp2_plugin_manifest = {
    .struct_size = sizeof(fsdp2_manifest),
    .abi_major = FSDP2_ABI_MAJOR,
    .abi_minor = FSDP2_ABI_MINOR,
    .reserved = 0,
    .magic = FSDP2_MANIFEST_MAGIC,
    .torch_abi_version = TORCH_ABI_VERSION,
    .cxx11_abi = _GLIBCXX_USE_CXX11_ABI,
    .sizeof_tensor_impl = sizeof(c10::TensorImpl),
    .sizeof_ivalue = sizeof(c10::IValue),
    .sizeof_jit_module = sizeof(torch::jit::Module),
    .sizeof_jit_operator = sizeof(torch::jit::Operator),
#ifdef USE_C10D_NCCL
    .cuda_version = CUDA_VERSION,
    .nccl_version = NCCL_VERSION_CODE,
#else
    .cuda_version = 0,
    .nccl_version = 0,
#endif
    .reserved2 = 0,
    .torch_version = TORCH_VERSION,
    .plugin_version =
        FSDP2_TEXT(FSDP2_VERSION_MAJOR) "." FSDP2_TEXT(FSDP2_VERSION_MINOR) "." FSDP2_TEXT(FSDP2_VERSION_PATCH),
};
