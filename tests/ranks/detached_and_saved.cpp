// Detach gives a plain module with the trained weights; what it saves knows nothing of us.
#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>

#include "plugin/checkpoint/module_archive.hpp"
#include "registry/error.hpp"
#include "tests/ranks/language_models.hpp"
#include "tests/ranks/odd_training.hpp"

namespace fsdp2::testing {
namespace {
namespace jit = torch::jit;

std::map<std::string, std::string> records_of(const std::string& path) {
  caffe2::serialize::PyTorchStreamReader reader(path);
  std::map<std::string, std::string> records;
  for (const std::string& name : reader.getAllRecords()) {
    auto [data, size] = reader.getRecord(name);
    records[name] = std::string(static_cast<const char*>(data.get()), size);
  }
  return records;
}

void detach_and_save(RankContext& context, const std::string& model, const Sharding& sharding, const Loss& loss_of,
                     const std::function<at::Tensor(jit::Module&)>& output_of) {
  SCOPED_TRACE(model + " " + sharding.strategy);
  Recipe recipe;
  recipe.loss = loss_of;
  recipe.steps = 2;
  const Reference reference = train_unsharded(load(context, model), recipe, context.world());
  auto module = load(context, model);
  const auto names = named_parameters(module);
  auto sharded = shard(context, module, sharding);
  const auto optimizer = make_optimizer(recipe.optimizer, tensors_of(*sharded), recipe.rate);
  for (int64_t step = 0; step < recipe.steps; ++step) {
    optimizer->zero_grad();
    loss_of(module, step, context.rank()).backward();
    optimizer->step();
  }
  const at::NoGradGuard guard;
  const at::Tensor before = output_of(module).clone();
  sharded->detach();
  expect_parameters_equal(module, reference.parameters, {});
  const auto parameters = named_parameters(module);
  EXPECT_EQ(parameters.size(), names.size());
  for (const auto& [name, tensor] : parameters) {
    EXPECT_TRUE(tensor.is_contiguous() && tensor.is_leaf()) << name;
    // A file holds whole storages: a view into a flat buffer would write the buffer once a parameter.
    EXPECT_EQ(tensor.storage().nbytes(), tensor.nbytes()) << name;
    EXPECT_EQ(tensor.storage_offset(), 0) << name;
  }
  EXPECT_LE((output_of(module) - before).abs().max().item<double>(), 1e-5);
  sharded.reset();
  EXPECT_LE((output_of(module) - before).abs().max().item<double>(), 1e-5) << "the module outlives its engine";

  const std::string path = context.scratch_path("saved" + std::to_string(context.rank()));
  module.save(path);
  const auto records = records_of(path);
  for (const auto& [name, text] : records) {
    EXPECT_EQ(text.find("fsdp2_plugin"), std::string::npos) << "record " << name;
  }
  // The code is that of a module that never met us.
  const std::string plain_path = context.scratch_path("plain" + std::to_string(context.rank()));
  auto plain = load(context, model);
  plain.save(plain_path);
  const auto plain_records = records_of(plain_path);
  ASSERT_EQ(records.size(), plain_records.size());
  int64_t code = 0;
  for (const auto& [name, text] : plain_records) {
    ASSERT_EQ(records.count(name), 1U) << name;
    if (name.find("code/") != 0 || name.find(".debug_pkl") != std::string::npos) continue;
    ++code;
    EXPECT_EQ(records.at(name), text) << name;
  }
  EXPECT_GT(code, 0);
  EXPECT_LE(std::filesystem::file_size(path), std::filesystem::file_size(plain_path) + 16384);
  auto loaded = jit::load(path);
  EXPECT_TRUE(output_of(loaded).equal(output_of(module)));
  for (const auto& [name, tensor] : named_parameters(loaded)) EXPECT_TRUE(tensor.equal(parameters.at(name))) << name;
  ::unlink(path.c_str());
  ::unlink(plain_path.c_str());
}

at::Tensor logits(jit::Module& module) {
  return module.forward({input_ids(0, 0)}).toTensor();
}

const bool added = [] {
  for (const LanguageModel& model : language_models()) {
    add_case(__FILE__, __LINE__, "DetachedAndSaved", model.file, [model](RankContext& context) {
      detach_and_save(context, model.file, by_layer(model), next_token_loss, logits);
    });
  }
  return true;
}();

RANK_CASE(DetachedAndSaved, small_modules) {
  const auto output = [](jit::Module& module) { return module.forward({odd_input(0, 0)}).toTensor(); };
  for (const char* model : {"ThreeLayers", "Frozen", "CallsFeatures", "Mixed", "AttentionModel"}) {
    detach_and_save(context, model, {}, odd_recipe().loss, output);
  }
  for (const char* strategy : {"shard_grad_op", "no_shard"}) {
    Sharding sharding = units_of({"Layer"});
    sharding.strategy = strategy;
    detach_and_save(context, "ThreeLayers", sharding, odd_recipe().loss, output);
  }
}

/// The file that an export leaves, on rank 0: the source's with today's weights, and nothing else.
void export_while_sharded(RankContext& context, const std::string& model, const Sharding& sharding,
                          const Loss& loss_of) {
  SCOPED_TRACE(model);
  auto module = load(context, model);
  const auto sharded = shard(context, module, sharding);
  const auto optimizer = make_optimizer(Optimizer::kMomentum, tensors_of(*sharded), 0.05);
  const std::string source = context.model_path(model);
  const std::string target = context.scratch_path("exported");
  for (int64_t step = 0; step < 3; ++step) {
    optimizer->zero_grad();
    loss_of(module, step, context.rank()).backward();
    optimizer->step();
    if (step == 1) sharded->export_to(source, target);  // training goes on
  }
  sharded->export_to(source, target);
  // Back to the file's weights, and to those of the export.
  for (const std::string& file : {source, target}) {
    context.barrier();
    std::vector<const void*> places;
    for (const at::Tensor& shard : tensors_of(*sharded)) places.push_back(shard.const_data_ptr());
    sharded->load_from(file);
    for (size_t i = 0; i < places.size(); ++i) EXPECT_EQ(tensors_of(*sharded)[i].const_data_ptr(), places[i]);
    auto plain = jit::load(file);
    expect_shards_equal(*sharded, named_parameters(plain), 0);
    const at::NoGradGuard no_grad;  // a kept unit must not go on with what it had
    plain.train();
    EXPECT_NEAR(loss_of(module, 7, 0).item<double>(), loss_of(plain, 7, 0).item<double>(), 1e-5);
  }
  sharded->detach();
  if (context.rank() != 0) return;
  auto exported = jit::load(target);
  for (const auto& [name, tensor] : named_parameters(module)) {
    EXPECT_TRUE(named_parameters(exported).at(name).equal(tensor)) << name;
  }
  for (const auto& buffer : module.named_buffers()) {
    for (const auto& stored : exported.named_buffers()) {
      if (stored.name != buffer.name) continue;
      EXPECT_TRUE(stored.value.equal(buffer.value)) << buffer.name;
    }
  }
  const auto records = records_of(target);
  const auto source_records = records_of(source);
  EXPECT_EQ(records.size(), source_records.size());
  for (const auto& [name, text] : source_records) {
    if (name.find("serialization_id") != std::string::npos || name.find("data/") == 0) continue;
    EXPECT_EQ(records.at(name), text) << name;
  }
}

RANK_CASE_ON(Behaviour_I2, exported_and_loaded_while_sharded, 1, 2) {
  for (const char* model : {"lm_tied", "hf_llama"}) {
    const auto& models = language_models();
    const auto known = std::find_if(models.begin(), models.end(), [&](const auto& m) { return m.file == model; });
    export_while_sharded(context, model, by_layer(*known), next_token_loss);
  }
  for (const char* model : {"ThreeLayers", "Frozen", "Mixed", "WritesBuffer"}) {
    export_while_sharded(context, model, {}, odd_recipe().loss);
  }
}

RANK_CASE(DetachedAndSaved, an_export_that_cannot_be_is_a_fault_on_every_rank) {
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}));
  const std::string good = context.model_path("ThreeLayers");
  const auto fault = [&](const std::string& source, const std::string& target) -> std::string {
    try {
      sharded->export_to(source, target);
    } catch (const Error& error) {
      return error.what();
    }
    return "no fault";
  };
  const auto expect = [&](const std::string& text, const std::string& on_rank_0) {
    EXPECT_NE(text.find(context.rank() == 0 ? on_rank_0 : "rank 0 could not export"), std::string::npos) << text;
  };
  const std::string target = context.scratch_path("exported");
  expect(fault("/nowhere/model.pt", target), "/nowhere/model.pt: No such file");
  expect(fault("/dev/null", target), "/dev/null");
  expect(fault(good, "/nowhere/out.pt"), "cannot write /nowhere/out.pt");
  expect(fault(context.model_path("lm"), target), "it is the file of another model");
  expect(fault(good, "/dev/full/x"), "cannot write");
  expect(fault(context.model_path("Double"), target), "has elements of type Float, but Double in");
  EXPECT_FALSE(std::filesystem::exists(target));
  EXPECT_EQ(fault(good, target), "no fault");
  const auto load_fault = [&](const std::string& file) -> std::string {
    try {
      sharded->load_from(file);
    } catch (const Error& error) {
      return error.what();
    }
    return "no fault";
  };
  const at::Tensor before = sharded->parameters().front().tensor.detach().view(-1).clone();
  EXPECT_NE(load_fault(context.model_path("lm")).find("it is the file of another model"), std::string::npos);
  const std::string text = load_fault(context.rank() == 1 ? "/nowhere" : good);
  EXPECT_NE(text.find(context.rank() == 1 ? "/nowhere: No such file" : "rank 1 could not load the weights"),
            std::string::npos)
      << text;
  EXPECT_TRUE(at::equal(before, sharded->parameters().front().tensor.detach().view(-1)));
  sharded->begin_local_use();
  EXPECT_NE(fault(good, target).find("export while the parameters are gathered"), std::string::npos);
  sharded->end_local_use(false);
}

/// Somebody writes a file anew while it is read: an error, not a signal.
RANK_CASE_ON(DetachedAndSaved, a_file_that_is_cut_short_meanwhile, 1) {
  const std::string copy = context.scratch_path("copy.pt");
  std::filesystem::copy_file(context.model_path("lm"), copy);
  const ModuleArchive archive(copy);
  const auto& [name, stored] = *archive.tensors().begin();
  EXPECT_TRUE(archive.elements(name, 0, stored.tensor.numel()).equal(stored.tensor.reshape({-1})));
  std::filesystem::resize_file(copy, 100);
  try {
    static_cast<void>(archive.elements(name, 0, stored.tensor.numel()));
    ADD_FAILURE() << "what is not there was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ends before `" + name + "` does"), std::string::npos) << error.what();
  }
}

/// An error after the time, and no file.
RANK_CASE(DetachedAndSaved, an_export_on_one_rank_only) {
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}), context.new_communicator(1));
  if (context.rank() == 0) {
    const std::string target = context.scratch_path("half");
    EXPECT_ANY_THROW(sharded->export_to(context.model_path("ThreeLayers"), target));
    EXPECT_FALSE(std::filesystem::exists(target));
  }
  context.barrier();
}

/// A host that saves a sharded module gets no file that looks good and holds shards.
RANK_CASE(DetachedAndSaved, saving_a_sharded_module_is_refused) {
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, units_of({"Layer"}));
  const std::string path = context.scratch_path("sharded" + std::to_string(context.rank()));
  std::string text;
  try {
    module.save(path);
  } catch (const std::exception& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("detach"), std::string::npos) << "no error, or one that does not name the right call: " << text;
  text.clear();
  try {
    const jit::Module clone = module.clone();
  } catch (const std::exception& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("detach"), std::string::npos) << "clone: no error, or another one: " << text;
  // The engine goes on.
  const auto reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(1), context.world());
  mean_square(module.forward({odd_input(0, context.rank())})).backward();
  expect_gradients_equal(*sharded, reference.gradients[0]);
  sharded->detach();
  module.save(path);
  EXPECT_GT(std::filesystem::file_size(path), 0U);
  ::unlink(path.c_str());
}

/// The host lets go of an engine while gathers, or sums of gradients, are under way: the transport serves the next one.
RANK_CASE(DetachedAndSaved, released_with_transfers_in_flight) {
  auto communicator = context.new_communicator();
  Sharding sharding;
  sharding.classes = {"Layer"};
  {
    const auto gathering = shard(context, load(context, "ThreeLayers"), sharding, communicator);
    gathering->start_unshard("", true);
  }
  {
    auto module = load(context, "ThreeLayers");
    const auto summing = shard(context, module, sharding, communicator);
    summing->set_last_backward(false);
    mean_square(module.forward({odd_input(0, context.rank())})).backward();
  }
  const Reference reference = train_unsharded(load(context, "ThreeLayers"), odd_recipe(1), context.world());
  auto module = load(context, "ThreeLayers");
  const auto sharded = shard(context, module, sharding, communicator);
  mean_square(module.forward({odd_input(0, context.rank())})).backward();
  expect_gradients_equal(*sharded, reference.gradients[0]);
}

}  // namespace
}  // namespace fsdp2::testing
