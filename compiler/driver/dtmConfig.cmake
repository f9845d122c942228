# find_package(dtm): programs of dtmc as targets of a CMake project.
#
#   dtm_add_executable(NAME SOURCE.dtm
#     [MESH dp=2,tp=2] [TARGET cuda:sm_90]      # --mesh, --target
#     [DEFINES dim=512 ...] [INCLUDES DIR ...]  # -D, -I
#     [OPTIONS ...])                            # anything else that dtmc takes
#
# makes NAME in CMAKE_RUNTIME_OUTPUT_DIRECTORY, or where that is not set in bin/ of the current build
# folder, anew whenever dtmc, the source or a file that it imports has changed. Property
# DTM_EXECUTABLE of target NAME is its path.
cmake_minimum_required(VERSION 3.20) # DEPFILE with make

get_filename_component(_dtm_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
find_program(DTM_COMPILER dtmc PATHS "${_dtm_prefix}" PATH_SUFFIXES bin NO_DEFAULT_PATH)
unset(_dtm_prefix)
if(NOT DTM_COMPILER)
  set(dtm_FOUND FALSE)
  set(dtm_NOT_FOUND_MESSAGE "there is no dtmc in the bin/ beside ${CMAKE_CURRENT_LIST_DIR}")
  return()
endif()

function(dtm_add_executable name source)
  cmake_parse_arguments(PARSE_ARGV 2 dtm "" "MESH;TARGET" "DEFINES;INCLUDES;OPTIONS")
  if(dtm_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "dtm_add_executable(${name}) does not take ${dtm_UNPARSED_ARGUMENTS}")
  endif()
  set(options ${dtm_OPTIONS})
  if(dtm_MESH)
    list(APPEND options --mesh=${dtm_MESH})
  endif()
  if(dtm_TARGET)
    list(APPEND options --target=${dtm_TARGET})
  endif()
  foreach(definition IN LISTS dtm_DEFINES)
    list(APPEND options -D ${definition})
  endforeach()
  foreach(include IN LISTS dtm_INCLUDES)
    get_filename_component(include "${include}" ABSOLUTE)
    list(APPEND options -I ${include})
  endforeach()
  get_filename_component(source "${source}" ABSOLUTE)
  # Not beside the build files: ninja takes a file NAME there for the target.
  set(folder "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  if(NOT folder)
    set(folder "${CMAKE_CURRENT_BINARY_DIR}/bin")
  endif()
  file(MAKE_DIRECTORY "${folder}")
  set(program "${folder}/${name}")
  add_custom_command(
    OUTPUT "${program}"
    COMMAND "${DTM_COMPILER}" "${source}" -o "${program}" -MD -MF "${program}.d" ${options}
    DEPENDS "${source}" "${DTM_COMPILER}"
    DEPFILE "${program}.d"
    COMMENT "Compiling ${name} with dtmc"
    VERBATIM)
  add_custom_target(${name} ALL DEPENDS "${program}")
  set_target_properties(${name} PROPERTIES DTM_EXECUTABLE "${program}")
endfunction()
