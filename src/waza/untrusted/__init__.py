"""What holds hostile things. Nothing here knows graders or specs.

Where to look:

    patterns      run a regular expression        (backtrack, lookaround: what RE2 cannot do, in a killable child)
    assertions    a Python expression             (expressions: what is refused; evaluator: what runs in the child;
                                                   seccomp: the child's system calls)
    javascript    a JavaScript expression         (constant_forms, for both: what cannot come out both ways)
    schemas       a JSON Schema                   (strict_json: JSON without surprises)
    workspace     read the files an agent left    (copies: a private copy for programs)
    room          the folder of one trial         (tree, removal: walking and removing without following links)
    snapshot      keep a folder by its content    (objects: the store)
    process       start a program, end it whole   (attend, beside, workers, supervisor, worker, descendants, wire,
                                                   capture, environment, isolation, landlock, mounts: its parts)
    isolation_probes    what each isolation holds on this machine
    folders       paths written in a spec
    child         a child that can be killed      (child_program: what runs in it)
    texts         texts every engine can take
    yaml12        YAML written by people, with positions and budgets (yaml_faults: its sentences)
"""
