//! The subscription index: from a Topic Name to who receives it.
