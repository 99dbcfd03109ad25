// A zoo of libraries with one defect each: every one is refused, with a text that says what to do. Most are the real
// plugin with one field of its manifest changed, so that a check which came too late would run real code.
#include <gtest/gtest.h>
#include <fsdp2/plugin.hpp>

#include <cstddef>
#include <cstring>

#include "tests/abi/scratch.hpp"

namespace fsdp2::testing {
namespace {

class Zoo : public ::testing::Test {
 protected:
  /// What loading a file says, without the path in front.
  std::string refusal(const std::string& path, fsdp2_code code = FSDP2_VERSION_MISMATCH) {
    try {
      Plugin::load(path);
    } catch (const Exception& error) {
      EXPECT_EQ(error.code(), code);
      const std::string text = error.what();
      EXPECT_EQ(text.rfind(path + ": ", 0), 0U) << text;
      return text.substr(path.size() + 2);
    }
    return "loaded";
  }

  /// A copy of the plugin whose manifest has other bytes at `offset`.
  template <typename T>
  std::string with_field(size_t offset, T value) {
    std::string bytes = read_file(plugin_path());
    const size_t magic = bytes.find("FSDPMAN2");
    EXPECT_NE(magic, std::string::npos);
    EXPECT_EQ(bytes.find("FSDPMAN2", magic + 1), std::string::npos) << "more than one manifest?";
    std::memcpy(bytes.data() + magic - offsetof(fsdp2_manifest, magic) + offset, &value, sizeof(value));
    // A name of its own: the loader keeps the earlier ones mapped.
    const std::string path = scratch_.path("libzoo_" + std::to_string(++made_) + ".so");
    write_file(path, bytes);
    return path;
  }

  Scratch scratch_;
  int made_ = 0;
};

TEST_F(Zoo, TheRealOneLoads) {
  EXPECT_EQ(refusal(plugin_path()), "loaded");
}

TEST_F(Zoo, NoSuchFile) {
  const std::string path = scratch_.path("nothing.so");
  EXPECT_EQ(refusal(path, FSDP2_NOT_FOUND),
            "cannot be loaded: " + path + ": cannot open shared object file: No such file or directory");
}

TEST_F(Zoo, NotASharedObject) {
  const std::string path = scratch_.path("text.so");
  write_file(path, "this is no library\n");
  EXPECT_EQ(refusal(path), "cannot be loaded: " + path + ": file too short");
}

TEST_F(Zoo, NoManifest) {
  EXPECT_EQ(refusal(beside_plugin("libabi_no_manifest.so")),
            "not an fsdp2 plugin: it does not export fsdp2_plugin_manifest");
}

TEST_F(Zoo, WrongMagic) {
  EXPECT_EQ(refusal(with_field(offsetof(fsdp2_manifest, magic), uint64_t{7})),
            "not an fsdp2 plugin: its fsdp2_plugin_manifest has another format");
}

TEST_F(Zoo, NoTable) {
  std::string bytes = read_file(plugin_path());
  for (size_t at = 0; (at = bytes.find(FSDP2_GET_API_SYMBOL, at)) != std::string::npos;) bytes[at] = 'F';
  const std::string path = scratch_.path("libzoo.so");
  write_file(path, bytes);
  EXPECT_EQ(refusal(path), "not an fsdp2 plugin: it does not export fsdp2_plugin_get_api");
}

TEST_F(Zoo, ForeignAbi) {
  EXPECT_EQ(
      refusal(with_field(offsetof(fsdp2_manifest, abi_major), uint32_t{7})),
      "speaks plugin ABI 7.1, this program speaks 1.1: rebuild the program with the plugin.hpp of that plugin, or "
      "load a plugin of ABI 1.1");
  EXPECT_EQ(
      refusal(with_field(offsetof(fsdp2_manifest, abi_major), uint32_t{0})),
      "speaks plugin ABI 0.1, this program speaks 1.1: rebuild the program with the plugin.hpp of that plugin, or "
      "load a plugin of ABI 1.1");
  EXPECT_EQ(refusal(with_field(offsetof(fsdp2_manifest, abi_minor), uint32_t{2})), "loaded");
}

TEST_F(Zoo, ShortManifest) {
  EXPECT_EQ(refusal(with_field(offsetof(fsdp2_manifest, struct_size), uint32_t{40})),
            "its manifest has 40 bytes, ABI 1.1 needs 128: rebuild the plugin");
  EXPECT_EQ(refusal(with_field(offsetof(fsdp2_manifest, struct_size), uint32_t{0})),
            "not an fsdp2 plugin: its fsdp2_plugin_manifest has another format");
}

TEST_F(Zoo, ForeignTorch) {
  const uint64_t version = (uint64_t{2} << 56) | (uint64_t{15} << 48);
  const std::string here = "LibTorch " TORCH_VERSION;
  EXPECT_EQ(refusal(with_field(offsetof(fsdp2_manifest, torch_abi_version), version)),
            "built for LibTorch 2.15.0, this program runs " + here + ": rebuild the plugin for " + here +
                ", or start the program with LibTorch 2.15.0");
}

TEST_F(Zoo, OtherStringAbi) {
  const std::string ours = std::to_string(_GLIBCXX_USE_CXX11_ABI);
  const uint32_t other = 1 - _GLIBCXX_USE_CXX11_ABI;
  EXPECT_EQ(refusal(with_field(offsetof(fsdp2_manifest, cxx11_abi), other)),
            "built with _GLIBCXX_USE_CXX11_ABI=" + std::to_string(other) + ", this program with " + ours +
                ": rebuild the plugin with the flag of this LibTorch");
}

TEST_F(Zoo, OtherTypeSizes) {
  const auto text = [](const std::string& type, size_t size) {
    return "built for another LibTorch of the same version: its " + type + " has 3 bytes, this program's " +
           std::to_string(size) + ": rebuild the plugin against the LibTorch of this program";
  };
  EXPECT_EQ(refusal(with_field(offsetof(fsdp2_manifest, sizeof_tensor_impl), uint32_t{3})),
            text("c10::TensorImpl", sizeof(c10::TensorImpl)));
  EXPECT_EQ(refusal(with_field(offsetof(fsdp2_manifest, sizeof_ivalue), uint32_t{3})),
            text("c10::IValue", sizeof(c10::IValue)));
  EXPECT_EQ(refusal(with_field(offsetof(fsdp2_manifest, sizeof_jit_module), uint32_t{3})),
            text("torch::jit::Module", sizeof(torch::jit::Module)));
  EXPECT_EQ(refusal(with_field(offsetof(fsdp2_manifest, sizeof_jit_operator), uint32_t{3})),
            text("torch::jit::Operator", sizeof(torch::jit::Operator)));
}

}  // namespace
}  // namespace fsdp2::testing
