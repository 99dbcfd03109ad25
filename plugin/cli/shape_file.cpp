#include "plugin/cli/shape_file.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "registry/given.hpp"
#include "registry/host_text.hpp"
#include "registry/nearest_name.hpp"
#include "registry/plan.hpp"
#include "registry/toml_nesting.hpp"

namespace fsdp2::cli {
namespace {

constexpr int64_t kMostModules = 1'000'000;  // and parameters; a model of this many takes seconds, more is a slip
constexpr size_t kLongestPath = 512;         // characters
constexpr int64_t kMostElements = int64_t{1} << 54;  // bytes of all that trains with them can be counted

struct Node {
  std::string class_name;  // empty: only on the way to another
  bool has_forward = true;
  Source source;
  std::vector<std::pair<std::string, std::unique_ptr<Node>>> parts;  // in order
  std::map<std::string, Node*, std::less<>> by_name;
  struct Parameter {
    std::string name;
    TreeParameter shape_and_type;
    std::string tied_to;  // full name
    Source source;
  };
  std::vector<Parameter> parameters;
  std::set<std::string, std::less<>> names;  // of parameters
};

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  ModuleTree read(std::string_view text) {
    check_host_text(text, file_);
    check_toml_nesting(text, file_);
    toml::table document;
    try {
      document = toml::parse(text, file_);
    } catch (const toml::parse_error& error) {
      throw error_at(at(error.source()), {}, "this is not TOML: " + std::string(error.description()));
    }
    require_keys(document, "", std::array<std::string_view, 2>{"dtype", "module"});
    if (const toml::node* dtype = document.get("dtype")) dtype_ = dtype_of(*dtype, "dtype");
    const toml::node* modules = document.get("module");
    const toml::array* list = modules == nullptr ? nullptr : modules->as_array();
    if (list == nullptr || list->empty() || !list->is_array_of_tables()) {
      const Source source = modules == nullptr ? Source{.file = file_} : at(modules->source());
      throw error_at(source, "module", "a shape file has a table [[module]] for each module, or pattern of modules");
    }
    for (const toml::node& module : *list) add_module(*module.as_table());
    emit("", root_, std::nullopt);
    tie();
    if (tree_.parameters.empty()) throw error_at(Source{.file = file_}, "module", "no module has `parameters`");
    return std::move(tree_);
  }

 private:
  [[nodiscard]] Source at(const toml::source_region& region) const {
    return {.file = file_,
            .line = static_cast<int64_t>(region.begin.line),
            .column = static_cast<int64_t>(region.begin.column)};
  }

  void require_keys(const toml::table& table, const std::string& prefix,
                    std::span<const std::string_view> known) const {
    for (const auto& [key, node] : table) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      const std::string name(key.str());
      throw error_at(at(key.source()), prefix + name,
                     "a shape file has no key `" + prefix + name + "`; it has " + quoted_list(known),
                     nearest_name(name, known));
    }
  }

  template <class T>
  T value_of(const toml::node& node, const std::string& key, const char* wanted) const {
    const auto value = node.value_exact<T>();
    if (!value) throw error_at(at(node.source()), key, "`" + key + "` must be " + wanted);
    return *value;
  }

  DType dtype_of(const toml::node& node, const std::string& key) const {
    const auto name = value_of<std::string>(node, key, "the name of a dtype, like \"bfloat16\"");
    const auto dtype = dtype_from_name(name);
    if (dtype) return *dtype;
    constexpr std::array<std::string_view, 4> kLikely{"float32", "bfloat16", "float16", "float64"};
    throw error_at(at(node.source()), key,
                   "`" + key + " = \"" + name + "\"` is no dtype; for example " + quoted_list(kLikely),
                   nearest_name(name, kLikely));
  }

  void add_module(const toml::table& table) {
    constexpr std::array<std::string_view, 7> kKeys{"path",      "class",      "forward", "dtype",
                                                    "trainable", "parameters", "tied"};
    require_keys(table, "module.", kKeys);
    const toml::node* path = table.get("path");
    if (path == nullptr)
      throw error_at(at(table.source()), "module.path", "this [[module]] has no `path`; that of the root is \"\"");
    std::string class_name = "Module";
    bool has_forward = true;
    bool trainable = true;
    DType dtype = dtype_;
    if (const auto* node = table.get("class")) class_name = value_of<std::string>(*node, "module.class", "a string");
    if (const auto* node = table.get("forward")) has_forward = value_of<bool>(*node, "module.forward", "true or false");
    if (const auto* node = table.get("trainable"))
      trainable = value_of<bool>(*node, "module.trainable", "true or false");
    if (const auto* node = table.get("dtype")) dtype = dtype_of(*node, "module.dtype");
    const Source place = at(path->source());
    for (const std::string& one : expanded(value_of<std::string>(*path, "module.path", "a string"), place)) {
      Node& node = at_path(one, place);
      if (!node.class_name.empty()) {
        throw error_at(place, "module.path",
                       "module `" + one + "` is there already, from line " + std::to_string(node.source.line));
      }
      node.class_name = class_name;
      node.has_forward = has_forward;
      node.source = place;
      add_parameters(node, table, dtype, trainable);
      add_tied(node, table);
    }
  }

  void add_parameters(Node& node, const toml::table& table, DType dtype, bool trainable) {
    const toml::node* given = table.get("parameters");
    if (given == nullptr) return;
    const toml::table* parameters = given->as_table();
    if (parameters == nullptr) {
      throw error_at(at(given->source()), "module.parameters",
                     "`module.parameters` must be a table of names and shapes, like { weight = [4096, 1024] }");
    }
    for_each_leaf(*parameters, "", [&](const std::string& name, const toml::node& value, const toml::key& key) {
      TreeParameter parameter;
      parameter.shape = shape_of(value, name);
      parameter.dtype = dtype;
      parameter.trainable = trainable;
      add_parameter(node, name,
                    {.name = {}, .shape_and_type = std::move(parameter), .tied_to = {}, .source = at(key.source())});
    });
  }

  void add_tied(Node& node, const toml::table& table) {
    const toml::node* given = table.get("tied");
    if (given == nullptr) return;
    const toml::table* tied = given->as_table();
    if (tied == nullptr) {
      throw error_at(at(given->source()), "module.tied",
                     "`module.tied` must be a table of names and full names, like { weight = \"embed.weight\" }");
    }
    for_each_leaf(*tied, "", [&](const std::string& name, const toml::node& value, const toml::key& key) {
      const auto other = value_of<std::string>(value, "module.tied." + name, "the full name of a parameter");
      add_parameter(node, name, {.name = {}, .shape_and_type = {}, .tied_to = other, .source = at(key.source())});
    });
  }

  /// Names with dots may be quoted or not.
  template <class Function>
  static void for_each_leaf(const toml::table& table, const std::string& prefix, const Function& function) {
    // toml++ orders by name; people expect the order of the file.
    std::vector<std::pair<const toml::key*, const toml::node*>> entries;
    for (const auto& [key, node] : table) entries.emplace_back(&key, &node);
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      const auto place = [](const auto& entry) {
        return std::pair(entry.first->source().begin.line, entry.first->source().begin.column);
      };
      return place(a) < place(b);
    });
    for (const auto& [key, node] : entries) {
      const std::string name = prefix + std::string(key->str());
      if (const toml::table* inner = node->as_table()) {
        for_each_leaf(*inner, name + ".", function);
      } else {
        function(name, *node, *key);
      }
    }
  }

  std::vector<int64_t> shape_of(const toml::node& node, const std::string& name) {
    const std::string key = "module.parameters." + name;
    const toml::array* sizes = node.as_array();
    std::vector<int64_t> shape;
    int64_t count = 1;
    if (sizes != nullptr) {
      for (const toml::node& size : *sizes) {
        const auto length = size.value_exact<int64_t>();
        if (!length || *length < 1) {
          shape.clear();
          break;
        }
        if (*length > kMostElements / count) {
          throw error_at(at(size.source()), key, "`" + key + "` has more elements than any model");
        }
        count *= *length;
        shape.push_back(*length);
      }
    }
    if (shape.empty()) {
      throw error_at(at(node.source()), key,
                     "`" + key + "` must be a shape: a list of whole numbers above 0, like [4096, 1024]");
    }
    return shape;
  }

  static void require_short(std::string_view path, const Source& source) {
    if (path.size() <= kLongestPath) return;
    throw error_at(source, "module.path", "a path of more than " + std::to_string(kLongestPath) + " characters");
  }

  /// To the module that a dotted name leads to.
  void add_parameter(Node& module, const std::string& name, Node::Parameter parameter) {
    require_short(name, parameter.source);
    Node* holder = &module;
    std::string_view rest = name;
    for (size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      holder = &part_of(*holder, rest.substr(0, dot), parameter.source);
      rest.remove_prefix(dot + 1);
    }
    if (rest.empty()) throw error_at(parameter.source, name, "`" + name + "` is no name of a parameter");
    parameter.name = rest;
    if (!holder->names.emplace(rest).second) {
      throw error_at(parameter.source, name, "parameter `" + name + "` is there twice");
    }
    count_one(parameter.source);
    holder->parameters.push_back(std::move(parameter));
  }

  Node& at_path(const std::string& path, const Source& source) {
    Node* node = &root_;
    std::string_view rest = path;
    while (!rest.empty()) {
      const size_t dot = rest.find('.');
      node = &part_of(*node, rest.substr(0, dot), source);
      if (dot == std::string_view::npos) break;
      rest.remove_prefix(dot + 1);
      if (rest.empty()) throw error_at(source, "module.path", "`" + path + "` is no path: it ends with a dot");
    }
    return *node;
  }

  Node& part_of(Node& node, std::string_view name, const Source& source) {
    if (name.empty()) throw error_at(source, "module.path", "a path has an empty name in it");
    if (const auto found = node.by_name.find(name); found != node.by_name.end()) return *found->second;
    count_one(source);
    node.parts.emplace_back(std::string(name), std::make_unique<Node>());
    Node* part = node.parts.back().second.get();
    node.by_name.emplace(std::string(name), part);
    return *part;
  }

  void count_one(const Source& source) {
    if (++count_ <= kMostModules) return;
    throw error_at(source, "module",
                   "the file describes more than " + std::to_string(kMostModules) + " modules and parameters");
  }

  /// "layers.{0..2}" as "layers.0", "layers.1", "layers.2".
  std::vector<std::string> expanded(const std::string& pattern, const Source& source) const {
    require_short(pattern, source);
    const size_t open = pattern.find('{');
    if (open == std::string::npos) return {pattern};
    const size_t close = pattern.find('}', open);
    const auto fail = [&] {
      throw error_at(source, "module.path",
                     "`" + pattern + "` is no pattern of paths; write a range as {0..79}, first and last number");
    };
    if (close == std::string::npos) fail();
    int64_t first = 0;
    int64_t last = 0;
    const char* const begin = pattern.data() + open + 1;
    const char* const end = pattern.data() + close;
    const auto [dots, fault] = std::from_chars(begin, end, first);
    if (fault != std::errc() || end - dots < 3 || dots[0] != '.' || dots[1] != '.') fail();
    const auto [behind, other_fault] = std::from_chars(dots + 2, end, last);
    if (other_fault != std::errc() || behind != end || first < 0 || last < first || last - first >= kMostModules)
      fail();
    std::vector<std::string> all;
    for (const std::string& tail : expanded(pattern.substr(close + 1), source)) {
      for (int64_t i = first; i <= last; ++i) {
        if (static_cast<int64_t>(all.size()) >= kMostModules) fail();
        all.push_back(pattern.substr(0, open) + std::to_string(i) + tail);
      }
    }
    return all;
  }

  void emit(const std::string& path, const Node& node, std::optional<size_t> parent) {
    const size_t index = tree_.modules.size();
    TreeModule module;
    module.path = path;
    module.class_name = node.class_name;
    module.has_forward = node.has_forward;
    if (node.class_name.empty()) {
      const bool is_list = !node.parts.empty() && parent.has_value() &&
                           std::all_of(node.parts.begin(), node.parts.end(), [](const auto& part) {
                             return part.first.find_first_not_of("0123456789") == std::string::npos;
                           });
      module.class_name = is_list ? "ModuleList" : "Module";
      module.has_forward = !is_list;
    }
    module.parent = parent;
    module.object = index;
    tree_.modules.push_back(std::move(module));
    const std::string prefix = path.empty() ? "" : path + ".";
    for (const Node::Parameter& parameter : node.parameters) {
      if (!parameter.tied_to.empty()) {
        tied_.push_back({prefix + parameter.name, parameter.tied_to, index, parameter.source});
        continue;
      }
      TreeParameter one = parameter.shape_and_type;
      one.names = {prefix + parameter.name};
      one.holders = one.readers = {index};
      total_ += numel(one.shape);
      if (total_ > kMostElements)
        throw error_at(parameter.source, "module", "the model has more elements than any machine");
      by_name_.emplace(one.names.front(), tree_.parameters.size());
      tree_.parameters.push_back(std::move(one));
    }
    for (const auto& [name, part] : node.parts) emit(prefix + name, *part, index);
  }

  [[nodiscard]] std::string why_no_parameter(const std::string& name) const {
    const auto is_it = [&](const Tied& other) { return other.name == name; };
    const auto other = std::find_if(tied_.begin(), tied_.end(), is_it);
    return other == tied_.end() ? "is no parameter of the file"
                                : "is itself tied, to `" + other->other + "`: name the parameter that has the shape";
  }

  void tie() {
    for (const Tied& tied : tied_) {
      const auto found = by_name_.find(tied.other);
      if (found == by_name_.end()) {
        std::vector<std::string_view> names;
        for (const auto& [name, index] : by_name_) names.emplace_back(name);
        throw error_at(tied.source, "module.tied",
                       "`" + tied.name + "` is tied to `" + tied.other + "`, which " + why_no_parameter(tied.other),
                       nearest_name(tied.other, names));
      }
      TreeParameter& parameter = tree_.parameters[found->second];
      parameter.names.push_back(tied.name);
      parameter.holders.push_back(tied.holder);
      parameter.readers.push_back(tied.holder);
    }
  }

  struct Tied {
    std::string name;
    std::string other;
    size_t holder;
    Source source;
  };

  std::string file_;
  DType dtype_ = DType::kFloat32;
  Node root_;
  int64_t count_ = 0;
  int64_t total_ = 0;
  ModuleTree tree_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::vector<Tied> tied_;
};

}  // namespace

ModuleTree read_shapes(std::string_view toml, const std::string& file) {
  return Reader(file).read(toml);
}

ModuleTree read_shape_file(const std::string& path) {
  return read_shapes(read_host_file(path, {}, "shapes"), path);
}

}  // namespace fsdp2::cli
